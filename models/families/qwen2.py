"""Qwen2 and Qwen2.5."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from turnout.core.types.model_spec import ModelSpec
from turnout.models.config_reader import ConfigReader
from turnout.models.families.base import Biases, DecoderFamily, read_spec
from turnout.models.families.windows import FULL, SLIDING, layer_kinds, with_windows

__all__ = ["Qwen2", "with_qwen_windows"]


class Qwen2(DecoderFamily):
    """Llama's decoder with biases on queries, keys and values, and no others."""

    architectures: ClassVar[tuple[str, ...]] = ("Qwen2ForCausalLM",)
    checkpoints: ClassVar[tuple[str, ...]] = ("Qwen/Qwen2.5-0.5B-Instruct", "Qwen/Qwen2-1.5B-Instruct")

    def spec(self, config: Mapping[str, Any]) -> ModelSpec:
        spec = read_spec(self.architectures[0], config, Biases(qkv=True, output=False, mlp=False))
        return with_qwen_windows(spec, ConfigReader(config))


def with_qwen_windows(spec: ModelSpec, reader: ConfigReader) -> ModelSpec:
    """Returns `spec` with Qwen's windows: where ``use_sliding_window``, of layers from one on."""
    if not reader.flag("use_sliding_window", False):
        return spec
    first = reader.integer("max_window_layers", 28)
    kinds = layer_kinds(reader, [SLIDING if layer >= first else FULL for layer in range(spec.layers)])
    return with_windows(spec, kinds, reader.integer("sliding_window", 4096))
