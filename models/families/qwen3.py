"""Qwen3 and Qwen3-MoE."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar

from turnout.core.types.model_spec import ModelSpec
from turnout.models.config_reader import ConfigReader
from turnout.models.families.base import Biases, DecoderFamily, read_spec
from turnout.models.families.moe import MoeSpec
from turnout.models.families.qwen2 import qwen_mlp, with_qwen_experts, with_qwen_windows

if TYPE_CHECKING:
    from torch import nn

    from turnout.models.decoder.routers import Router

__all__ = ["Qwen3", "Qwen3Moe"]


class Qwen3(DecoderFamily):
    """Llama's decoder with a norm over each head of queries and keys."""

    architectures: ClassVar[tuple[str, ...]] = ("Qwen3ForCausalLM",)

    def spec(self, config: Mapping[str, Any]) -> ModelSpec:
        return _read(self.architectures[0], {"head_dim": 128, **config})

    def build(self, spec: ModelSpec) -> nn.Module:
        from turnout.models.decoder.decoder import Decoder, DecoderLayer
        from turnout.models.decoder.layers import GatedMLP
        from turnout.models.decoder.normed_attention import HeadNormedAttention

        return Decoder(
            spec, lambda layer: DecoderLayer(spec, HeadNormedAttention(spec, layer), GatedMLP(spec))
        )

    def parameter_count(self, spec: ModelSpec) -> int:
        return super().parameter_count(spec) + 2 * spec.layers * spec.head_dim


class Qwen3Moe(DecoderFamily):
    """Qwen3 with experts."""

    architectures: ClassVar[tuple[str, ...]] = ("Qwen3MoeForCausalLM",)

    def spec(self, config: Mapping[str, Any]) -> MoeSpec:
        reader = ConfigReader(config)
        if reader.flag("use_sliding_window", False):
            raise reader.reject("use_sliding_window", "this family attends to the whole context")
        return with_qwen_experts(_read(self.architectures[0], config), reader, 0)

    def build(self, spec: ModelSpec) -> nn.Module:
        from turnout.models.decoder.decoder import Decoder, DecoderLayer
        from turnout.models.decoder.experts import SparseMLP
        from turnout.models.decoder.normed_attention import HeadNormedAttention

        assert isinstance(spec, MoeSpec)

        def sparse(router: Router) -> nn.Module:
            return SparseMLP(router, spec.make_experts())

        return Decoder(
            spec,
            lambda layer: DecoderLayer(spec, HeadNormedAttention(spec, layer), qwen_mlp(spec, layer, sparse)),
        )

    def parameter_count(self, spec: ModelSpec) -> int:
        assert isinstance(spec, MoeSpec)
        return super().parameter_count(spec) + spec.more_parameters + 2 * spec.layers * spec.head_dim


def _read(architecture: str, config: Mapping[str, Any]) -> ModelSpec:
    """Reads a config of Qwen3, with or without experts."""
    reader = ConfigReader(config)
    bias = reader.flag("attention_bias", False)
    spec = read_spec(architecture, config, Biases(qkv=bias, output=bias, mlp=False))
    return with_qwen_windows(spec, reader)
