"""Where the tensors of a checkpoint go in a model of transformers."""

from __future__ import annotations

import re

from transformers import PreTrainedModel
from transformers.conversion_mapping import get_model_conversion_mapping
from transformers.core_model_loading import WeightConverter, WeightRenaming, rename_source_key

from turnout.core.types.placement import Placement, Renamed, placements
from turnout.models.transformers_adapter.tensors.conversion import converted

__all__ = ["CheckpointNames"]


MXFP4 = "_blocks"
"""Ends the names of stacks of experts whose numbers a reader gives as linear layers have them."""


class CheckpointNames:
    """Finds a tensor's place by transformers' own rules for names and for tensors stored in another form."""

    def __init__(self, model: PreTrainedModel) -> None:
        mapping = get_model_conversion_mapping(model)
        self._renamings = [entry for entry in mapping if isinstance(entry, WeightRenaming)]
        self._converters = [entry for entry in mapping if isinstance(entry, WeightConverter)]
        self._prefix = model.base_model_prefix
        self._own = model.state_dict()
        self._ignored = [re.compile(each) for each in model._keys_to_ignore_on_load_unexpected or ()]

    def rename(self, key: str) -> Renamed:
        """Returns the tensor's place; None where the model needs no such tensor.

        Raises ModelError for a form that is not read.
        """
        stack = key.removesuffix(MXFP4)
        if stack != key and key not in self._own and isinstance(place := self.rename(stack), str):
            return Placement(place, transposed=True)
        name, pattern = rename_source_key(key, self._renamings, self._converters, self._prefix, self._own)
        if name not in self._own and key in self._own:
            return key
        if name not in self._own and (key.endswith(".inv_freq") or self._is_ignored(key, name)):
            return None
        if pattern is None:
            return name
        converter = next(each for each in self._converters if pattern in each.source_patterns)
        return converted(converter, pattern, key, name, self._own)

    def lacks(self, renamed: Renamed) -> bool:
        """Says whether the model has no tensor where one would go."""
        return any(each.name not in self._own for each in placements(renamed))

    def plain(self) -> dict[str, str]:
        """Returns the places of tensors that are called as the model's, or without the decoder's prefix."""
        found = {}
        for name in self._own:
            for key in (name, name.removeprefix(f"{self._prefix}.")):
                if isinstance(place := self.rename(key), str):
                    found[key] = place
        return found

    def _is_ignored(self, *names: str) -> bool:
        return any(pattern.search(name) for pattern in self._ignored for name in names)
