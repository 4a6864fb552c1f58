"""The family of all decoders that the installed transformers describes."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from turnout.core.errors import ModelError
from turnout.core.interfaces.models import ModelFamily
from turnout.core.types.model_spec import ModelSpec
from turnout.core.types.placement import Renamed
from turnout.models.remembered_decoder import RememberedDecoder, recall, remember
from turnout.models.text_parts import SERVED, has_other_text
from turnout.models.transformers_adapter.quick_import import quick_import

if TYPE_CHECKING:
    from torch import nn

    from turnout.core.interfaces.division import Division
    from turnout.models.transformers_adapter.exchange.layers import Exchanges
    from turnout.models.transformers_adapter.tensors.names import CheckpointNames

logger = logging.getLogger(__name__)

WIDTHS = ("heads", "kv_heads", "vocab_size", "intermediate_size", "attention")
"""What is narrower in a rank's share of a decoder."""

__all__ = ["TransformersAdapter"]


class TransformersAdapter(ModelFamily):
    """Runs transformers' own modules over Turnout's KV memory, for architectures that have no native family.

    It serves the causal models whose layers all call transformers' attention interface, causally or in a
    sliding window. Others are refused by name: recurrent states, attention code of their own, encoders with
    decoders, and models of images and sound.
    """

    architectures: ClassVar[tuple[str, ...]] = ()
    """None by name: it is asked where no family claims an architecture, or ``--model-impl transformers``."""

    def __init__(self) -> None:
        self._names: CheckpointNames | None = None
        self._folder: Path | None = None
        self._trusts_code = False
        self._is_decoder = False
        """Whether Turnout's own decoder computes what the model does."""
        self._exchanges: Exchanges | None = None
        self._config: Mapping[str, Any] = {}
        self._remembered: RememberedDecoder | None = None
        self._divisions: dict[tuple[int, int], Division | None] = {}
        self._whole: ModelSpec | None = None
        """What `spec` returned."""

    def may_run(self, folder: Path, trusted: bool) -> None:
        """Says where the checkpoint is, and whether code that lies there may be run."""
        self._folder, self._trusts_code = folder, trusted

    def has_causal(self, config: Mapping[str, Any], architecture: str) -> bool:
        """Says whether transformers has the causal model of that name for the config of its body."""
        from turnout.models.transformers_adapter.building import has_causal

        with quick_import():
            return has_causal(config, architecture)

    def text_config(self, config: Mapping[str, Any]) -> dict[str, Any] | None:
        """Returns the config of the text model in a model that reads images or sound too; None: it is no such
        model, or is not known to compute text as its text model does."""
        if config["architectures"][0] not in SERVED and not has_other_text(
            config
        ):  # nearly always, and found without transformers
            return None
        with quick_import():
            from turnout.models.transformers_adapter.building import text_config

            return text_config(config)

    def spec(self, config: Mapping[str, Any]) -> ModelSpec:
        self._config, self._remembered = config, None if "auto_map" in config else recall(config)
        if self._remembered is not None:
            spec = self._remembered.spec
        else:
            with quick_import():
                spec = self._spec(config)
        if self._is_decoder or self._remembered is not None:
            logger.info("%s has the shape of Llama, and runs by its layers", spec.architecture)
        elif self._exchanges is not None:
            told = self._exchanges.told()
            logger.info("%s runs by transformers' code, %s", spec.architecture, told)
        self._whole = spec
        return spec

    def build(self, spec: ModelSpec) -> nn.Module:
        if self._remembered is not None:
            return _decoder(self._remembered.decoder, spec)
        with quick_import():
            return self._build(spec)

    def division(self, spec: ModelSpec, parts: int, stages: int) -> Division | None:
        if self._remembered is not None:
            return None  # Turnout's own decoder
        asked = (parts, stages)
        if asked not in self._divisions:
            with quick_import():
                self._divisions[asked] = self._divide(spec, parts, stages)
        return self._divisions[asked]

    def _divide(self, spec: ModelSpec, parts: int, stages: int) -> Division | None:
        from turnout.models.meta_model import meta_model
        from turnout.models.transformers_adapter.building import parse_config
        from turnout.models.transformers_adapter.division import divide
        from turnout.models.transformers_adapter.exchange.layers import Exchanges
        from turnout.models.transformers_adapter.model import AdaptedModel

        module = meta_model(self, spec)
        if not isinstance(module, AdaptedModel):
            return None  # the same
        exchanges = self._exchanges or Exchanges()
        return divide(module.causal, parse_config(spec.config), spec, exchanges, parts, stages)

    def _spec(self, config: Mapping[str, Any]) -> ModelSpec:
        # Imported here, because listing plugins must import neither torch nor transformers.
        from turnout.models.transformers_adapter.check import read_and_try
        from turnout.models.transformers_adapter.own_code import run_own_code

        if self._folder is not None:
            run_own_code(config, self._folder, self._trusts_code)
        spec, self._is_decoder, self._exchanges = read_and_try(config)
        return spec

    def _build(self, spec: ModelSpec) -> nn.Module:
        from turnout.models.transformers_adapter.attention import IMPLEMENTATION
        from turnout.models.transformers_adapter.building import build_empty, parse_config
        from turnout.models.transformers_adapter.exchange.layers import (
            Exchanges,
            exchange_layers,
            siblings_in,
        )
        from turnout.models.transformers_adapter.llama_shape import decoder_spec, has_llama_shape
        from turnout.models.transformers_adapter.model import AdaptedModel
        from turnout.models.transformers_adapter.rotation import fix_rotations
        from turnout.models.transformers_adapter.tensors.names import CheckpointNames

        causal = build_empty(parse_config(spec.config), IMPLEMENTATION)
        fix_rotations(causal)
        exchanges = self._exchanges or Exchanges()
        exchange_layers(causal, exchanges)
        self._names = CheckpointNames(causal)
        whole = self._whole or spec
        if self._is_decoder and has_llama_shape(causal, whole):
            made = decoder_spec(causal, whole)
            self._remembered = RememberedDecoder(whole, made, self._names.plain())  # for the next to be built
            if "auto_map" not in self._config:
                remember(self._config, self._remembered)
            return _decoder(made, spec)
        shared = [rule.kv_from for rule in spec.layer_attention()]
        return AdaptedModel(causal, shared, siblings_in(causal, exchanges))

    def rename(self, key: str) -> Renamed:
        if self._remembered is not None:
            if key in self._remembered.names:
                return self._remembered.names[key]
            if self._names is None:  # a name that transformers knows how to read, or to refuse
                self._build(self._remembered.spec)
        if self._names is None:
            raise ModelError("transformers names a checkpoint's tensors only after it has built the model")
        return self._names.rename(key)


def _decoder(made: ModelSpec, share: ModelSpec) -> nn.Module:
    """made: what the whole decoder is built from; share: the spec of what is built, perhaps of a rank."""
    import torch

    from turnout.models.decoder.decoder import Decoder

    widths = {name: getattr(share, name) for name in WIDTHS}
    with torch.device("meta"):
        return Decoder(replace(made, **widths))
