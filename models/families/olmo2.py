"""OLMo 2."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar

from turnout.core.types.model_spec import ModelSpec
from turnout.models.config_reader import ConfigReader
from turnout.models.families.base import Biases, DecoderFamily, read_spec

if TYPE_CHECKING:
    from torch import nn

__all__ = ["Olmo2"]


class Olmo2(DecoderFamily):
    """Llama's decoder with norms behind attention and MLP, and over all queries and all keys of a token."""

    architectures: ClassVar[tuple[str, ...]] = ("Olmo2ForCausalLM",)

    def spec(self, config: Mapping[str, Any]) -> ModelSpec:
        reader = ConfigReader({"rms_norm_eps": 1e-5, **config})
        bias = reader.flag("attention_bias", False)
        return read_spec(self.architectures[0], reader.config, Biases(qkv=bias, output=bias, mlp=False))

    def build(self, spec: ModelSpec) -> nn.Module:
        from turnout.models.decoder.decoder import Decoder
        from turnout.models.decoder.layers import GatedMLP
        from turnout.models.decoder.normed_attention import WideNormedAttention
        from turnout.models.decoder.residuals import PostNormLayer

        return Decoder(
            spec, lambda layer: PostNormLayer(spec, WideNormedAttention(spec, layer), GatedMLP(spec))
        )

    def parameter_count(self, spec: ModelSpec) -> int:
        return super().parameter_count(spec) + spec.layers * (spec.heads + spec.kv_heads) * spec.head_dim
