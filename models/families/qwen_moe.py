"""Qwen2-MoE and Qwen3-MoE."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar

from turnout.core.types.model_spec import ModelSpec
from turnout.models.config_reader import ConfigReader
from turnout.models.families.base import Biases, DecoderFamily, extended, read_spec
from turnout.models.families.moe import MoeSpec, sparse_layers
from turnout.models.families.qwen3 import read_qwen3_spec

if TYPE_CHECKING:
    from torch import nn

__all__ = ["Qwen2Moe", "Qwen3Moe"]


class Qwen2Moe(DecoderFamily):
    """Qwen2 with experts, and beside them an MLP of which each token takes as much as a gate says."""

    architectures: ClassVar[tuple[str, ...]] = ("Qwen2MoeForCausalLM",)

    def spec(self, config: Mapping[str, Any]) -> MoeSpec:
        reader = ConfigReader(config)
        if reader.flag("use_sliding_window", False):
            raise reader.reject("use_sliding_window", "set it to false to attend to the whole context")
        biases = Biases(qkv=reader.flag("qkv_bias", True), output=False, mlp=False)
        plain = read_spec(self.architectures[0], config, biases)
        return _with_experts(plain, reader, reader.integer("shared_expert_intermediate_size", 5632))

    def build(self, spec: ModelSpec) -> nn.Module:
        from turnout.models.decoder.decoder import Decoder, DecoderLayer
        from turnout.models.decoder.experts import GatedSparseMLP
        from turnout.models.decoder.layers import Attention, GatedMLP
        from turnout.models.decoder.routers import SoftmaxRouter

        assert isinstance(spec, MoeSpec)

        def mlp(layer: int) -> nn.Module:
            if not spec.sparse[layer]:
                return GatedMLP(spec)
            router = SoftmaxRouter(spec.hidden_size, spec.experts, spec.top, normalized=spec.normalized)
            shared = GatedMLP(spec, spec.shared_size)
            return GatedSparseMLP(router, spec.make_experts(), shared, spec.hidden_size)

        return Decoder(spec, lambda layer: DecoderLayer(spec, Attention(spec, layer), mlp(layer)))

    def parameter_count(self, spec: ModelSpec) -> int:
        assert isinstance(spec, MoeSpec)
        gates = sum(spec.sparse) * spec.hidden_size
        return super().parameter_count(spec) + spec.more_parameters + gates


class Qwen3Moe(DecoderFamily):
    """Qwen3 with experts."""

    architectures: ClassVar[tuple[str, ...]] = ("Qwen3MoeForCausalLM",)

    def spec(self, config: Mapping[str, Any]) -> MoeSpec:
        reader = ConfigReader(config)
        if reader.flag("use_sliding_window", False):
            raise reader.reject("use_sliding_window", "set it to false to attend to the whole context")
        return _with_experts(read_qwen3_spec(self.architectures[0], config), reader, 0)

    def build(self, spec: ModelSpec) -> nn.Module:
        from turnout.models.decoder.decoder import Decoder, DecoderLayer
        from turnout.models.decoder.experts import SparseMLP
        from turnout.models.decoder.layers import GatedMLP
        from turnout.models.decoder.normed_attention import HeadNormedAttention
        from turnout.models.decoder.routers import SoftmaxRouter

        assert isinstance(spec, MoeSpec)

        def mlp(layer: int) -> nn.Module:
            if not spec.sparse[layer]:
                return GatedMLP(spec)
            router = SoftmaxRouter(spec.hidden_size, spec.experts, spec.top, normalized=spec.normalized)
            return SparseMLP(router, spec.make_experts())

        return Decoder(spec, lambda layer: DecoderLayer(spec, HeadNormedAttention(spec, layer), mlp(layer)))

    def parameter_count(self, spec: ModelSpec) -> int:
        assert isinstance(spec, MoeSpec)
        return super().parameter_count(spec) + spec.more_parameters + 2 * spec.layers * spec.head_dim


def _with_experts(spec: ModelSpec, reader: ConfigReader, shared_size: int) -> MoeSpec:
    # transformers writes one or the other, by its version.
    count = "num_local_experts" if reader.has("num_local_experts") else "num_experts"
    return extended(
        spec,
        MoeSpec,
        experts=reader.integer(count),
        top=reader.integer("num_experts_per_tok"),
        expert_size=reader.integer("moe_intermediate_size"),
        normalized=reader.flag("norm_topk_prob", False),
        sparse=sparse_layers(reader, spec.layers),
        shared_size=shared_size,
    )
