"""Granite 3."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar

from turnout.core.types.layer_attention import LayerAttention
from turnout.core.types.model_spec import ModelSpec
from turnout.models.config_reader import ConfigReader
from turnout.models.families.base import Biases, DecoderFamily, extended, read_spec

if TYPE_CHECKING:
    from torch import nn

__all__ = ["Granite", "GraniteSpec"]


@dataclass(frozen=True, kw_only=True)
class GraniteSpec(ModelSpec):
    """Granite's multipliers."""

    embedding_multiplier: float
    residual_multiplier: float
    logits_scaling: float


class Granite(DecoderFamily):
    """Llama's decoder with multipliers of embeddings, scores, residuals and logits."""

    architectures: ClassVar[tuple[str, ...]] = ("GraniteForCausalLM",)

    def spec(self, config: Mapping[str, Any]) -> GraniteSpec:
        reader = ConfigReader(config)
        bias = reader.flag("attention_bias", False)
        biases = Biases(qkv=bias, output=bias, mlp=reader.flag("mlp_bias", False))
        plain = read_spec(self.architectures[0], config, biases)
        scale = reader.number("attention_multiplier", 1.0)
        rule = LayerAttention(plain.heads, plain.kv_heads, plain.head_dim, plain.head_dim, scale=scale)
        return extended(
            replace(plain, attention=(rule,) * plain.layers),
            GraniteSpec,
            embedding_multiplier=reader.number("embedding_multiplier", 1.0),
            residual_multiplier=reader.number("residual_multiplier", 1.0),
            logits_scaling=reader.number("logits_scaling", 1.0),
        )

    def build(self, spec: ModelSpec) -> nn.Module:
        from turnout.models.decoder.decoder import Decoder
        from turnout.models.decoder.layers import Attention, GatedMLP
        from turnout.models.decoder.numbers import Scaled
        from turnout.models.decoder.residuals import ScaledLayer

        assert isinstance(spec, GraniteSpec)
        factor = spec.residual_multiplier
        return Decoder(
            spec,
            lambda layer: ScaledLayer(spec, Attention(spec, layer), GatedMLP(spec), factor),
            before=Scaled(spec.embedding_multiplier),
            after=Scaled(1 / spec.logits_scaling),
        )
