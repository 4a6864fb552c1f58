"""Llama, and other models with the architecture ``LlamaForCausalLM``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from turnout.core.types.model_spec import ModelSpec
from turnout.models.config_reader import ConfigReader
from turnout.models.families.base import Biases, DecoderFamily, read_spec

__all__ = ["Llama"]


class Llama(DecoderFamily):
    """Llama's decoder. ``attention_bias`` adds biases to attention's four projections, ``mlp_bias`` to the
    MLP's three.
    """

    architectures: ClassVar[tuple[str, ...]] = ("LlamaForCausalLM",)
    checkpoints: ClassVar[tuple[str, ...]] = (
        "meta-llama/Llama-3.2-1B-Instruct",
        "HuggingFaceTB/SmolLM2-360M-Instruct",
        "TinyLlama/TinyLlama-1.1B-Chat-v1.0",
    )

    def spec(self, config: Mapping[str, Any]) -> ModelSpec:
        reader = ConfigReader(config)
        if reader.integer("pretraining_tp", 1) > 1:
            raise reader.reject("pretraining_tp", "set it to 1, which computes the same up to rounding")
        attention = reader.flag("attention_bias", False)
        biases = Biases(qkv=attention, output=attention, mlp=reader.flag("mlp_bias", False))
        return read_spec(self.architectures[0], config, biases)
