"""gpt-oss."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from turnout.core.types.layer_attention import LayerAttention
from turnout.core.types.model_spec import ModelSpec
from turnout.core.types.placement import Placement, Renamed
from turnout.models.config_reader import ConfigReader
from turnout.models.families.base import Biases, DecoderFamily, extended, read_spec
from turnout.models.families.moe import MoeSpec
from turnout.models.families.windows import FULL, SLIDING, layer_kinds, with_windows

if TYPE_CHECKING:
    from torch import Tensor, nn

__all__ = ["GptOss", "GptOssSpec"]

ROPE = {
    "rope_type": "yarn",
    "factor": 32.0,
    "beta_fast": 32.0,
    "beta_slow": 1.0,
    "truncate": False,
    "original_max_position_embeddings": 4096,
}
"""Of a config that says nothing of it."""


@dataclass(frozen=True, kw_only=True)
class GptOssSpec(MoeSpec):
    """What gpt-oss has beyond other mixtures."""

    slope: float
    """Of the sigmoid of experts' gates."""
    limit: float
    """The bound of what experts' gates multiply."""


class GptOss(DecoderFamily):
    """Sinks, windows in every other layer, and experts with biases and bounded gates."""

    architectures: ClassVar[tuple[str, ...]] = ("GptOssForCausalLM",)
    checkpoints: ClassVar[tuple[str, ...]] = ("openai/gpt-oss-20b", "openai/gpt-oss-120b")
    _experts: int

    def spec(self, config: Mapping[str, Any]) -> GptOssSpec:
        reader = ConfigReader(_completed(config))
        bias = reader.flag("attention_bias", True)
        plain = read_spec(self.architectures[0], reader.config, Biases(qkv=bias, output=bias, mlp=True))
        rule = LayerAttention(plain.heads, plain.kv_heads, plain.head_dim, plain.head_dim, sinks=True)
        kinds = layer_kinds(reader, [FULL if layer % 2 else SLIDING for layer in range(plain.layers)])
        window = None if config.get("sliding_window", 0) is None else reader.integer("sliding_window")
        self._experts = reader.integer("num_local_experts")
        return extended(
            with_windows(plain, kinds, window, rule),
            GptOssSpec,
            experts=self._experts,
            top=reader.integer("num_experts_per_tok"),
            expert_size=plain.intermediate_size,
            normalized=True,
            sparse=(True,) * plain.layers,
            slope=reader.number("swiglu_alpha", 1.702),
            limit=reader.number("swiglu_limit", 7.0),
        )

    def build(self, spec: ModelSpec) -> nn.Module:
        from turnout.models.decoder.decoder import Decoder, DecoderLayer
        from turnout.models.decoder.experts import SparseMLP
        from turnout.models.decoder.gates import BoundedGate
        from turnout.models.decoder.layers import SinkAttention
        from turnout.models.decoder.routers import SoftmaxRouter

        assert isinstance(spec, GptOssSpec)
        gate = BoundedGate(spec.slope, spec.limit)

        def mlp() -> nn.Module:
            router = SoftmaxRouter(spec.hidden_size, spec.experts, spec.top, bias=True)
            return SparseMLP(router, spec.make_experts(gate))

        return Decoder(spec, lambda layer: DecoderLayer(spec, SinkAttention(spec, layer), mlp()))

    def parameter_count(self, spec: ModelSpec) -> int:
        assert isinstance(spec, MoeSpec)
        biases = (spec.experts - 1) * (2 * spec.expert_size + spec.hidden_size)
        more = biases + spec.experts + spec.heads  # the routers' biases, and sinks
        return super().parameter_count(spec) + spec.more_parameters + spec.layers * more

    def rename(self, key: str) -> Renamed:
        before, stacked, part = key.partition(".mlp.experts.")
        if stacked and not part[0].isdigit():  # GGUF files are read expert by expert
            return tuple(_expert_parts(f"{before}{stacked}", part, self._experts))
        return super().rename(key.replace(".mlp.router.", ".mlp.gate."))


def _completed(config: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the config with transformers' defaults, where they are not those of other families."""
    known = {
        "num_local_experts": config.get("num_experts") or 128,
        "num_experts_per_tok": 4,
        "head_dim": 64,
        "max_position_embeddings": 131_072,
        "rms_norm_eps": 1e-5,
        "rope_theta": 150_000.0,
        "sliding_window": 128,
        **{key: value for key, value in config.items() if value is not None},
    }
    return known if "rope_scaling" in known else {"rope_parameters": ROPE, **known}


def _expert_parts(prefix: str, part: str, experts: int) -> Iterator[Placement]:
    """Yields where the parts of a tensor of all experts go. Gates and what they multiply take turns.

    Weights in blocks lie as linear layers have them, [experts, outputs, inputs], all others transposed.
    """
    gates = part.startswith("gate_up_proj")
    layers = {"gate_proj": 0, "up_proj": 1} if gates else {"down_proj": 0}
    end = "bias" if part.endswith("_bias") else "weight"
    for expert in range(experts):
        for layer, first in layers.items():
            name = f"{prefix}{expert}.{layer}.{end}"
            if part.endswith("_blocks"):
                rows = (slice(first, None, 2),) if gates else ()
                yield Placement(name, take=(expert, *rows))
            else:
                yield Placement(name, take=(expert,), change=(_even, _odd)[first] if gates else _rows)


def _rows(tensor: Tensor) -> Tensor:
    return tensor.mT if tensor.dim() == 2 else tensor


def _even(tensor: Tensor) -> Tensor:
    return _rows(tensor[..., ::2])


def _odd(tensor: Tensor) -> Tensor:
    return _rows(tensor[..., 1::2])
