"""Mistral, Ministral and Mixtral."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar

from turnout.core.types.model_spec import ModelSpec
from turnout.core.types.placement import Renamed
from turnout.models.config_reader import ConfigReader
from turnout.models.families.base import Biases, DecoderFamily, extended, read_spec
from turnout.models.families.moe import MoeSpec
from turnout.models.families.windows import FULL, SLIDING, layer_kinds, with_windows

if TYPE_CHECKING:
    from torch import nn

__all__ = ["Ministral", "Mistral", "Mixtral", "mistral_window"]

PLAIN = Biases(qkv=False, output=False, mlp=False)
EXPERT_NAMES = {
    ".block_sparse_moe.": ".mlp.",
    ".w1.": ".gate_proj.",
    ".w2.": ".down_proj.",
    ".w3.": ".up_proj.",
}
"""Parts of names of Mixtral's tensors."""


class Mistral(DecoderFamily):
    """Llama's decoder, all of whose layers have the window ``sliding_window``, where it is not null."""

    architectures: ClassVar[tuple[str, ...]] = ("MistralForCausalLM",)

    def spec(self, config: Mapping[str, Any]) -> ModelSpec:
        spec = read_spec(self.architectures[0], config, PLAIN)
        return with_windows(spec, [SLIDING] * spec.layers, mistral_window(config))


class Ministral(DecoderFamily):
    """Llama's decoder, whose layers have a window where ``layer_types`` says so."""

    architectures: ClassVar[tuple[str, ...]] = ("MinistralForCausalLM",)

    def spec(self, config: Mapping[str, Any]) -> ModelSpec:
        spec, window = read_spec(self.architectures[0], config, PLAIN), mistral_window(config)
        default = SLIDING if window else FULL
        return with_windows(spec, layer_kinds(ConfigReader(config), [default] * spec.layers), window)


class Mixtral(DecoderFamily):
    """Mistral with experts in all layers."""

    architectures: ClassVar[tuple[str, ...]] = ("MixtralForCausalLM",)

    def spec(self, config: Mapping[str, Any]) -> MoeSpec:
        reader = ConfigReader({"rms_norm_eps": 1e-5, "rope_theta": 1_000_000.0, **config})
        plain = read_spec(self.architectures[0], reader.config, Biases(qkv=False, output=False, mlp=False))
        window = reader.integer("sliding_window") if reader.has("sliding_window") else None
        return extended(
            with_windows(plain, [SLIDING] * plain.layers, window),
            MoeSpec,
            experts=reader.integer("num_local_experts", 8),
            top=reader.integer("num_experts_per_tok", 2),
            expert_size=plain.intermediate_size,
            normalized=True,
            sparse=(True,) * plain.layers,
        )

    def build(self, spec: ModelSpec) -> nn.Module:
        from turnout.models.decoder.decoder import Decoder, DecoderLayer
        from turnout.models.decoder.experts import SparseMLP
        from turnout.models.decoder.layers import Attention
        from turnout.models.decoder.routers import SoftmaxRouter

        assert isinstance(spec, MoeSpec)

        def mlp() -> nn.Module:
            return SparseMLP(SoftmaxRouter(spec.hidden_size, spec.experts, spec.top), spec.make_experts())

        return Decoder(spec, lambda layer: DecoderLayer(spec, Attention(spec, layer), mlp()))

    def parameter_count(self, spec: ModelSpec) -> int:
        assert isinstance(spec, MoeSpec)
        return super().parameter_count(spec) + spec.more_parameters

    def rename(self, key: str) -> Renamed:
        for theirs, ours in EXPERT_NAMES.items():
            key = key.replace(theirs, ours)
        return super().rename(key)


def mistral_window(config: Mapping[str, Any]) -> int | None:
    """Returns the window; None: there is none. A config without the key means 4096."""
    if "sliding_window" in config and config["sliding_window"] is None:
        return None
    return ConfigReader(config).integer("sliding_window", 4096)
