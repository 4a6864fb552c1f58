"""Gemma 2 and 3."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar

from turnout.core.types.layer_attention import LayerAttention
from turnout.core.types.model_spec import ModelSpec, RopeSpec
from turnout.models.config_reader import ConfigReader
from turnout.models.families.base import Biases, DecoderFamily, extended, read_spec
from turnout.models.families.windows import FULL, SLIDING, layer_kinds, with_windows
from turnout.models.rope_spec import read_rope

if TYPE_CHECKING:
    from torch import nn

__all__ = ["Gemma2", "Gemma3", "GemmaSpec"]


@dataclass(frozen=True, kw_only=True)
class GemmaSpec(ModelSpec):
    """What Gemma has beyond Llama."""

    kinds: tuple[str, ...]
    """For each layer: `FULL` or `SLIDING`."""
    local_rope: RopeSpec
    """The rotation of layers that slide; `rope` is that of the others."""
    logits_cap: float | None


class Gemma2(DecoderFamily):
    """Norms around attention and MLP, GeGLU, windows in every other layer, soft caps."""

    architectures: ClassVar[tuple[str, ...]] = ("Gemma2ForCausalLM",)

    def spec(self, config: Mapping[str, Any]) -> GemmaSpec:
        caps = {"attn_logit_softcapping": 50.0, "final_logit_softcapping": 30.0}
        reader = ConfigReader({**caps, **config})
        cap = _cap(reader, "attn_logit_softcapping")
        return _read(self.architectures[0], reader.config, every=2, local_theta=None, score_cap=cap)

    def build(self, spec: ModelSpec) -> nn.Module:
        from turnout.models.decoder.layers import Attention

        return _build(spec, Attention)

    def parameter_count(self, spec: ModelSpec) -> int:
        return super().parameter_count(spec) + 2 * spec.layers * spec.hidden_size


class Gemma3(DecoderFamily):
    """Gemma 2 with norms over heads and no caps; five layers of six have windows and their own rotation."""

    architectures: ClassVar[tuple[str, ...]] = ("Gemma3ForCausalLM",)

    def spec(self, config: Mapping[str, Any]) -> GemmaSpec:
        reader = ConfigReader(config)
        every = reader.integer("sliding_window_pattern", 6)
        if not reader.flag("use_bidirectional_attention", False):
            return _read(self.architectures[0], config, every=every, local_theta=10_000.0)
        # EmbeddingGemma. A window is counted to both sides together; ours counts one side, the token with it.
        window = reader.integer("sliding_window", 4096) // 2 + 1
        spec = _read(
            self.architectures[0], {**config, "sliding_window": window}, every=every, local_theta=10_000.0
        )
        both = tuple(replace(rule, causal=False) for rule in spec.layer_attention())
        return replace(spec, attention=both, encoder=True)

    def build(self, spec: ModelSpec) -> nn.Module:
        from turnout.models.decoder.normed_attention import HeadNormedAttention
        from turnout.models.decoder.norms import OffsetRMSNorm

        return _build(spec, lambda spec, layer: HeadNormedAttention(spec, layer, OffsetRMSNorm))

    def parameter_count(self, spec: ModelSpec) -> int:
        norms = 2 * spec.hidden_size + 2 * spec.head_dim
        return super().parameter_count(spec) + spec.layers * norms


def _read(
    architecture: str,
    config: Mapping[str, Any],
    *,
    every: int,
    local_theta: float | None,
    score_cap: float | None = None,
) -> GemmaSpec:
    """every: one layer in so many sees all positions; local_theta: None: all layers rotate alike; score_cap:
    of attention, which Gemma 3 has not, whatever its config says."""
    config = {"head_dim": 256, "tie_word_embeddings": True, **config}
    reader = ConfigReader(config)
    if reader.text("hidden_activation", "gelu_pytorch_tanh") != "gelu_pytorch_tanh":
        raise reader.reject("hidden_activation", "the gate of the MLP must be 'gelu_pytorch_tanh'")
    bias = reader.flag("attention_bias", False)
    shared, local = _ropes(reader, local_theta)
    plain = read_spec(
        architecture, {**config, **shared, "hidden_act": "silu"}, Biases(qkv=bias, output=bias, mlp=False)
    )
    kinds = layer_kinds(reader, [SLIDING if (layer + 1) % every else FULL for layer in range(plain.layers)])
    rule = LayerAttention(
        *(plain.heads, plain.kv_heads, plain.head_dim, plain.head_dim),
        scale=reader.number("query_pre_attn_scalar", 256) ** -0.5,
        softcap=score_cap,
    )
    return extended(
        with_windows(plain, kinds, reader.integer("sliding_window", 4096), rule),
        GemmaSpec,
        kinds=kinds,
        local_rope=plain.rope if local is None else local,
        logits_cap=_cap(reader, "final_logit_softcapping"),
    )


def _ropes(reader: ConfigReader, local_theta: float | None) -> tuple[Mapping[str, Any], RopeSpec | None]:
    """Returns the config of the rotation of layers that see all, and the rotation of those that slide.

    Newer configs have both in ``rope_parameters``, older ones have ``rope_local_base_freq``.
    """
    if local_theta is None:
        return {}, None
    given = reader.mapping("rope_parameters")
    old = {"rope_parameters": None, "rope_scaling": reader.config.get("rope_scaling")}
    if FULL not in given:
        theta = reader.number("rope_local_base_freq", local_theta)
        shared = {**old, "rope_theta": reader.number("rope_theta", 1_000_000.0)}
        return shared, RopeSpec(theta=theta)
    one, other = (ConfigReader(given).mapping(kind) for kind in (FULL, SLIDING))
    shared = {"rope_parameters": {"rope_theta": 1_000_000.0, **one}, "rope_scaling": None}
    local = {**reader.config, "rope_parameters": {"rope_theta": local_theta, **other}, "rope_scaling": None}
    return shared, read_rope(ConfigReader(local))


def _cap(reader: ConfigReader, key: str) -> float | None:
    return reader.number(key) if reader.has(key) else None


def _build(spec: ModelSpec, attention: Any) -> nn.Module:
    from turnout.models.decoder.decoder import Decoder
    from turnout.models.decoder.gates import gelu_gate
    from turnout.models.decoder.layers import GatedMLP
    from turnout.models.decoder.norms import OffsetRMSNorm
    from turnout.models.decoder.numbers import Scaled, SoftCapped
    from turnout.models.decoder.residuals import SandwichLayer
    from turnout.models.decoder.rope import RotaryByLayer, make_rotary

    assert isinstance(spec, GemmaSpec)

    def layer(number: int) -> nn.Module:
        mlp = GatedMLP(spec, gated=gelu_gate)
        return SandwichLayer(spec, attention(spec, number), mlp, OffsetRMSNorm)

    rotaries = [make_rotary(rope, spec.head_dim) for rope in (spec.rope, spec.local_rope)]
    return Decoder(
        spec,
        layer,
        norm=OffsetRMSNorm,
        rotary=RotaryByLayer(rotaries, [int(kind == SLIDING) for kind in spec.kinds]),
        before=Scaled(spec.hidden_size**0.5, rounded=True),
        after=None if spec.logits_cap is None else SoftCapped(spec.logits_cap),
    )
