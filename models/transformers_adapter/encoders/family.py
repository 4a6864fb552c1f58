"""The family of encoders that the installed transformers describes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar

from turnout.core.errors import ModelError
from turnout.core.interfaces.models import ModelFamily
from turnout.core.process import no_collections
from turnout.core.types.model_spec import ModelSpec
from turnout.core.types.placement import Renamed

if TYPE_CHECKING:
    from torch import nn

    from turnout.models.transformers_adapter.encoders.classes import EncoderClass
    from turnout.models.transformers_adapter.encoders.trial import Found
    from turnout.models.transformers_adapter.tensors.names import CheckpointNames

__all__ = ["EncoderAdapter"]

NUMBERS = ("position_ids", "token_type_ids", "inv_freq")
"""How the names of buffers end that old checkpoints hold."""


class EncoderAdapter(ModelFamily):
    """Runs transformers' own modules for encoders that have no native family.

    It serves those whose layers all call transformers' attention interface, to both sides or in a window.
    """

    architectures: ClassVar[tuple[str, ...]] = ()
    """None by name, as of `TransformersAdapter`."""

    def __init__(self) -> None:
        self._classes: EncoderClass | None = None
        self._found: Found | None = None
        self._names: CheckpointNames | None = None
        self._left_out: frozenset[str] = frozenset()
        """The tensors of heads that are not built, as the checkpoint's class names them."""

    def builds(self, config: Mapping[str, Any], architecture: str) -> bool:
        """Says whether transformers has the encoder of that name."""
        from transformers import CONFIG_MAPPING

        from turnout.models.transformers_adapter.building import parse_config
        from turnout.models.transformers_adapter.encoders.classes import encoder_class

        with no_collections():
            known = config.get("model_type") in CONFIG_MAPPING
            return known and encoder_class(parse_config(config), architecture) is not None

    def spec(self, config: Mapping[str, Any]) -> ModelSpec:
        # Imported here, because listing plugins must import neither torch nor transformers.
        from turnout.models.transformers_adapter.encoders.reading import read_encoder

        with no_collections():
            spec, self._classes, self._found = read_encoder(config)
        return spec

    def build(self, spec: ModelSpec) -> nn.Module:
        from turnout.models.transformers_adapter.building import parse_config
        from turnout.models.transformers_adapter.encoders.model import AdaptedEncoder
        from turnout.models.transformers_adapter.encoders.trial import exchanged, first_position_of
        from turnout.models.transformers_adapter.tensors.names import CheckpointNames

        assert self._classes is not None and self._found is not None, (
            "a spec is read before its model is built"
        )
        with no_collections():
            config = parse_config(spec.config)
            model = exchanged(config, self._classes, self._found)
            self._names = CheckpointNames(model)
            self._left_out = frozenset(_names_of(config, self._classes))
            return AdaptedEncoder(model, first_position_of(config, skips_padding=self._found.skips_padding))

    def rename(self, key: str) -> Renamed:
        if self._names is None:
            raise ModelError("transformers names a checkpoint's tensors only after it has built the model")
        if key.endswith(NUMBERS):
            return None
        renamed = self._names.rename(key)
        return None if self._names.lacks(renamed) and key in self._left_out else renamed


def _names_of(config: Any, classes: EncoderClass) -> list[str]:
    """Returns the names of all tensors that a checkpoint of this class may have."""
    import torch
    from transformers.initialization import no_init_weights

    with torch.device("meta"), no_init_weights():
        return list(classes.stored(config).state_dict())
