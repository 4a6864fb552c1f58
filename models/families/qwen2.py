"""Qwen2 and Qwen2.5."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from turnout.core.types.model_spec import ModelSpec
from turnout.models.config_reader import ConfigReader
from turnout.models.families.base import Biases, DecoderFamily, read_spec

__all__ = ["Qwen2"]


class Qwen2(DecoderFamily):
    """Llama's decoder with biases on queries, keys and values, and no others."""

    architectures: ClassVar[tuple[str, ...]] = ("Qwen2ForCausalLM",)
    checkpoints: ClassVar[tuple[str, ...]] = ("Qwen/Qwen2.5-0.5B-Instruct", "Qwen/Qwen2-1.5B-Instruct")

    def spec(self, config: Mapping[str, Any]) -> ModelSpec:
        reader = ConfigReader(config)
        if reader.flag("use_sliding_window", False):
            raise reader.reject("use_sliding_window", "set it to false to attend to the whole context")
        return read_spec(self.architectures[0], config, Biases(qkv=True, output=False, mlp=False))
