"""Qwen2 and Qwen2.5, and Qwen2-MoE."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, ClassVar

from turnout.core.types.model_spec import ModelSpec
from turnout.models.config_reader import ConfigReader
from turnout.models.families.base import Biases, DecoderFamily, extended, read_spec
from turnout.models.families.moe import MoeSpec, sparse_layers
from turnout.models.families.windows import FULL, SLIDING, layer_kinds, with_windows

if TYPE_CHECKING:
    from torch import nn

    from turnout.models.decoder.routers import Router

__all__ = ["Qwen2", "Qwen2Moe", "qwen_mlp", "with_qwen_experts", "with_qwen_windows"]


class Qwen2(DecoderFamily):
    """Llama's decoder with biases on queries, keys and values, and no others."""

    architectures: ClassVar[tuple[str, ...]] = ("Qwen2ForCausalLM",)
    checkpoints: ClassVar[tuple[str, ...]] = ("Qwen/Qwen2.5-0.5B-Instruct", "Qwen/Qwen2-1.5B-Instruct")

    def spec(self, config: Mapping[str, Any]) -> ModelSpec:
        spec = read_spec(self.architectures[0], config, Biases(qkv=True, output=False, mlp=False))
        return with_qwen_windows(spec, ConfigReader(config))


class Qwen2Moe(DecoderFamily):
    """Qwen2 with experts, and beside them an MLP of which each token takes as much as a gate says."""

    architectures: ClassVar[tuple[str, ...]] = ("Qwen2MoeForCausalLM",)

    def spec(self, config: Mapping[str, Any]) -> MoeSpec:
        reader = ConfigReader(config)
        if reader.flag("use_sliding_window", False):
            raise reader.reject("use_sliding_window", "this family attends to the whole context")
        biases = Biases(qkv=reader.flag("qkv_bias", True), output=False, mlp=False)
        plain = read_spec(self.architectures[0], config, biases)
        return with_qwen_experts(plain, reader, reader.integer("shared_expert_intermediate_size", 5632))

    def build(self, spec: ModelSpec) -> nn.Module:
        from turnout.models.decoder.decoder import Decoder, DecoderLayer
        from turnout.models.decoder.experts import GatedSparseMLP
        from turnout.models.decoder.layers import Attention, GatedMLP

        assert isinstance(spec, MoeSpec)

        def sparse(router: Router) -> nn.Module:
            shared = GatedMLP(spec, spec.shared_size)
            return GatedSparseMLP(router, spec.make_experts(), shared, spec.hidden_size)

        return Decoder(
            spec, lambda layer: DecoderLayer(spec, Attention(spec, layer), qwen_mlp(spec, layer, sparse))
        )

    def parameter_count(self, spec: ModelSpec) -> int:
        assert isinstance(spec, MoeSpec)
        gates = sum(spec.sparse) * spec.hidden_size
        return super().parameter_count(spec) + spec.more_parameters + gates


def with_qwen_windows(spec: ModelSpec, reader: ConfigReader) -> ModelSpec:
    """Returns `spec` with Qwen's windows: where ``use_sliding_window``, of layers from one on."""
    none = "sliding_window" in reader.config and not reader.has("sliding_window")
    if none or not reader.flag("use_sliding_window", False):
        return spec
    first = reader.integer("max_window_layers", 28, least=0)
    kinds = layer_kinds(reader, [SLIDING if layer >= first else FULL for layer in range(spec.layers)])
    return with_windows(spec, kinds, reader.integer("sliding_window", 4096))


def with_qwen_experts(spec: ModelSpec, reader: ConfigReader, shared_size: int) -> MoeSpec:
    """Returns `spec` with experts as Qwen's configs say it; shared_size: as `MoeSpec` has it."""
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


def qwen_mlp(spec: MoeSpec, layer: int, sparse: Callable[[Router], nn.Module]) -> nn.Module:
    """Returns the MLP of a layer: a plain one, or what `sparse` makes of its router."""
    from turnout.models.decoder.layers import GatedMLP
    from turnout.models.decoder.routers import SoftmaxRouter

    if not spec.sparse[layer]:
        return GatedMLP(spec)
    return sparse(SoftmaxRouter(spec.hidden_size, spec.experts, spec.top, normalized=spec.normalized))
