"""DeepSeek V2 and V3."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

from turnout.core.errors import ModelError
from turnout.core.types.layer_attention import LayerAttention
from turnout.core.types.model_spec import ModelSpec
from turnout.core.types.placement import Placement, Renamed
from turnout.models.config_reader import ConfigReader
from turnout.models.families.base import Biases, DecoderFamily, extended, read_spec
from turnout.models.families.moe import MoeSpec

if TYPE_CHECKING:
    from torch import Tensor, nn

    from turnout.models.decoder.routers import Router

__all__ = ["DeepseekSpec", "DeepseekV2", "DeepseekV3"]


V3 = {"n_group": 8, "topk_group": 4, "norm_topk_prob": True, "routed_scaling_factor": 2.5}
"""What a config of V3 that says nothing of it means to transformers, and no tensor's shape tells."""


@dataclass(frozen=True, kw_only=True)
class DeepseekSpec(MoeSpec):
    """The widths of latent attention, and how experts are chosen. `head_dim` is that of compressed keys."""

    rank: int
    query_rank: int | None
    plain: int
    turned: int
    value: int
    groups: int
    top_groups: int
    scale: float
    """What the weights of experts are multiplied by."""
    interleaved: bool
    """Whether the checkpoint has the two numbers that turn together beside one another."""


class DeepseekV2(DecoderFamily):
    """Latent attention, experts chosen by likelihood within groups, and an MLP beside them."""

    architectures: ClassVar[tuple[str, ...]] = ("DeepseekV2ForCausalLM",)
    _spec: DeepseekSpec

    def spec(self, config: Mapping[str, Any]) -> DeepseekSpec:
        reader = ConfigReader(config)
        if reader.flag("mlp_bias", False):
            raise reader.reject("mlp_bias", "MLPs and experts must have no biases")
        grouped = reader.text("topk_method", "greedy") == "group_limited_greedy"
        self._spec = _read(self.architectures[0], reader, interleaved=True, grouped=grouped)
        return self._spec

    def build(self, spec: ModelSpec) -> nn.Module:
        from turnout.models.decoder.decoder import Decoder, DecoderLayer
        from turnout.models.decoder.experts import SharedSparseMLP
        from turnout.models.decoder.latent_attention import LatentAttention, LatentSizes
        from turnout.models.decoder.layers import GatedMLP
        from turnout.models.decoder.rope import RotaryByLayer, make_rotary

        assert isinstance(spec, DeepseekSpec)
        sizes = LatentSizes(
            *(spec.hidden_size, spec.heads, spec.rank, spec.query_rank),
            *(spec.plain, spec.turned, spec.value),
        )

        def mlp(layer: int) -> nn.Module:
            if not spec.sparse[layer]:
                return GatedMLP(spec)
            return SharedSparseMLP(self.router(spec), spec.make_experts(), GatedMLP(spec, spec.shared_size))

        def layer(number: int) -> nn.Module:
            return DecoderLayer(spec, LatentAttention(sizes, number, spec.qkv_bias), mlp(number))

        rotary = RotaryByLayer([make_rotary(spec.rope, spec.turned)], [0] * spec.layers)
        return Decoder(spec, layer, rotary=rotary, wide=("mlp.gate",))

    def router(self, spec: DeepseekSpec) -> Router:
        """Builds a layer's router."""
        from turnout.models.decoder.routers import LikelihoodRouter

        sizes = spec.hidden_size, spec.experts, spec.top
        return LikelihoodRouter(*sizes, spec.scale, spec.groups, spec.top_groups)

    def parameter_count(self, spec: ModelSpec) -> int | None:  # type: ignore[override]
        return None

    def rename(self, key: str) -> Renamed:
        spec = self._spec
        parts = key.split(".")
        if parts[:2] == ["model", "layers"] and int(parts[2]) >= spec.layers:
            return None  # layers that predict further tokens
        if spec.interleaved and parts[-2] in ("q_proj", "q_b_proj"):
            return Placement(key, change=partial(_halved, spec.plain + spec.turned, spec.turned))
        if spec.interleaved and parts[-2] == "kv_a_proj_with_mqa":
            return Placement(key, change=partial(_halved, spec.rank + spec.turned, spec.turned))
        return super().rename(key)


class DeepseekV3(DeepseekV2):
    """DeepSeek V2 with experts chosen by corrected scores."""

    architectures: ClassVar[tuple[str, ...]] = ("DeepseekV3ForCausalLM",)

    def spec(self, config: Mapping[str, Any]) -> DeepseekSpec:
        reader = ConfigReader({**V3, **config})
        interleaved = reader.flag("rope_interleave", "rope_interleave" not in config)  # null is false
        self._spec = spec = _read(self.architectures[0], reader, interleaved=interleaved, grouped=True)
        if spec.experts < 2 * spec.groups:
            raise ModelError(
                f"config.json: {spec.experts} experts in n_group = {spec.groups} groups are too few: a group "
                "is scored by its two best"
            )
        return spec

    def router(self, spec: DeepseekSpec) -> Router:
        from turnout.models.decoder.routers import CorrectedRouter

        sizes = spec.hidden_size, spec.experts, spec.top
        groups = spec.groups, spec.top_groups
        return CorrectedRouter(*sizes, spec.scale, *groups, normalized=spec.normalized)


def _read(architecture: str, reader: ConfigReader, *, interleaved: bool, grouped: bool) -> DeepseekSpec:
    rank, turned = reader.integer("kv_lora_rank", 512), reader.integer("qk_rope_head_dim", 64)
    plain = reader.integer("qk_nope_head_dim", 128)
    bias = reader.flag("attention_bias", False)
    shared = read_spec(
        architecture,
        {**reader.config, "head_dim": rank + turned, "num_key_value_heads": 1},
        Biases(qkv=bias, output=bias, mlp=False),
    )
    rule = LayerAttention(
        *(shared.heads, 1, rank + turned, rank),
        scale=(plain + turned) ** -0.5 * _yarn_factor(shared) ** 2,
        values_in_keys=True,
    )
    # transformers writes one of three names, by its version.
    names = [key for key in ("n_routed_experts", "num_local_experts", "num_experts") if reader.has(key)]
    experts = reader.integer(names[0] if names else "n_routed_experts", 64)
    groups = reader.integer("n_group", 1) if grouped else 1
    if experts % groups:
        raise ModelError(f"config.json: n_group = {groups} should divide the {experts} experts")
    top_groups = reader.integer("topk_group", 1) if grouped else 1
    if top_groups > groups:
        raise ModelError(f"config.json: topk_group = {top_groups} should be at most n_group = {groups}")
    dense = reader.integer("first_k_dense_replace") if reader.config.get("first_k_dense_replace") else 0
    size = reader.integer("moe_intermediate_size")
    return extended(
        replace(shared, attention=(rule,) * shared.layers),
        DeepseekSpec,
        experts=experts,
        top=reader.integer("num_experts_per_tok"),
        expert_size=size,
        normalized=reader.flag("norm_topk_prob", False),
        sparse=tuple(layer >= dense for layer in range(shared.layers)),
        shared_size=size * reader.integer("n_shared_experts", 1),
        rank=rank,
        query_rank=reader.integer("q_lora_rank") if reader.has("q_lora_rank") else None,
        plain=plain,
        turned=turned,
        value=reader.integer("v_head_dim", 128),
        groups=groups,
        top_groups=top_groups,
        scale=float(reader.number("routed_scaling_factor", 1.0)),
        interleaved=interleaved,
    )


def _yarn_factor(spec: ModelSpec) -> float:
    """Returns what YaRN multiplies queries and keys by, each."""
    weight, factor = spec.rope.parameters.get("mscale_all_dim"), spec.rope.parameters.get("factor", 1.0)
    if spec.rope.kind == "default" or not weight or factor <= 1:
        return 1.0
    return float(0.1 * weight * math.log(factor) + 1.0)


def _halved(width: int, turned: int, weight: Tensor) -> Tensor:
    """Returns the rows of `weight` with the last `turned` of each `width` in two halves, not in pairs."""
    first = width - turned
    order = [*range(first), *range(first, width, 2), *range(first + 1, width, 2)]
    return weight.reshape(-1, width, *weight.shape[1:])[:, order].flatten(0, 1)
