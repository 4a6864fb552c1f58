"""Where the tensors of a checkpoint go in a model of transformers."""

from __future__ import annotations

import re
from collections.abc import Iterable

from transformers import PreTrainedModel
from transformers.conversion_mapping import get_model_conversion_mapping
from transformers.core_model_loading import WeightConverter, WeightRenaming, rename_source_key

from turnout.core.errors import ModelError

__all__ = ["CheckpointNames"]


class CheckpointNames:
    """Turns names of a checkpoint into those of the model, by transformers' own rules for it."""

    def __init__(self, model: PreTrainedModel) -> None:
        mapping = get_model_conversion_mapping(model)
        self._renamings = [entry for entry in mapping if isinstance(entry, WeightRenaming)]
        self._converters = [entry for entry in mapping if isinstance(entry, WeightConverter)]
        self._prefix = model.base_model_prefix
        self._own = model.state_dict()
        self._ignored = [re.compile(pattern) for pattern in _patterns(model)]

    def rename(self, key: str) -> str | None:
        """Returns the model's name; None where the model needs no such tensor."""
        name, pattern = rename_source_key(key, self._renamings, self._converters, self._prefix, self._own)
        if name not in self._own and key in self._own:
            name, pattern = key, None
        if name not in self._own and (key.endswith(".inv_freq") or self._is_ignored(key, name)):
            return None
        if pattern is not None:
            raise ModelError(
                f"the checkpoint's {key!r} is stored in another form than {name!r} of transformers; such "
                "tensors are not read yet"
            )
        return name

    def _is_ignored(self, *names: str) -> bool:
        return any(pattern.search(name) for pattern in self._ignored for name in names)


def _patterns(model: PreTrainedModel) -> Iterable[str]:
    return model._keys_to_ignore_on_load_unexpected or ()
