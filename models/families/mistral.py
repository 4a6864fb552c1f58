"""Mistral and Ministral."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from turnout.core.types.model_spec import ModelSpec
from turnout.models.config_reader import ConfigReader
from turnout.models.families.base import Biases, DecoderFamily, read_spec
from turnout.models.families.windows import FULL, SLIDING, layer_kinds, with_windows

__all__ = ["Ministral", "Mistral", "mistral_window"]

PLAIN = Biases(qkv=False, output=False, mlp=False)


class Mistral(DecoderFamily):
    """Llama's decoder, all of whose layers have the window ``sliding_window``, where it is not null."""

    architectures: ClassVar[tuple[str, ...]] = ("MistralForCausalLM",)

    def spec(self, config: Mapping[str, Any]) -> ModelSpec:
        spec = read_spec(self.architectures[0], config, PLAIN)
        return with_windows(spec, [SLIDING] * spec.layers, mistral_window(config))


class Ministral(DecoderFamily):
    """Llama's decoder, whose layers have a window where ``layer_types`` says so."""

    architectures: ClassVar[tuple[str, ...]] = ("MinistralForCausalLM",)

    def spec(self, config: Mapping[str, Any]) -> ModelSpec:
        spec, window = read_spec(self.architectures[0], config, PLAIN), mistral_window(config)
        default = SLIDING if window else FULL
        return with_windows(spec, layer_kinds(ConfigReader(config), [default] * spec.layers), window)


def mistral_window(config: Mapping[str, Any]) -> int | None:
    """Returns the window; None: there is none. A config without the key means 4096."""
    if "sliding_window" in config and config["sliding_window"] is None:
        return None
    return ConfigReader(config).integer("sliding_window", 4096)
