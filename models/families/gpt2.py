"""GPT-2."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar

from turnout.core.types.model_spec import ModelSpec, RopeSpec
from turnout.core.types.placement import Placement, Renamed
from turnout.models.config_reader import ConfigReader
from turnout.models.families.base import DecoderFamily, read_dtype

if TYPE_CHECKING:
    from torch import nn

__all__ = ["Gpt2"]

NAMES = {
    "wte.": "model.embed_tokens.",
    "wpe.": "model.before.embed_positions.",
    "ln_f.": "model.norm.",
    "h.": "model.layers.",
    ".ln_1.": ".input_layernorm.",
    ".ln_2.": ".post_attention_layernorm.",
    ".attn.c_proj.": ".self_attn.o_proj.",
    ".mlp.c_fc.": ".mlp.up_proj.",
    ".mlp.c_proj.": ".mlp.down_proj.",
}
"""At the beginning of a name, or within it where a dot comes first."""
ACTIVATIONS = ("gelu_new", "gelu_pytorch_tanh", "gelu_fast")
"""All of them GELU's approximation by tanh."""


class Gpt2(DecoderFamily):
    """Learned positions, layer norms, biases everywhere, and an MLP without a gate."""

    architectures: ClassVar[tuple[str, ...]] = ("GPT2LMHeadModel",)
    _hidden = 0

    def spec(self, config: Mapping[str, Any]) -> ModelSpec:
        reader = ConfigReader(config)
        _check_supported(reader)
        hidden, heads = reader.integer("n_embd", 768), reader.integer("n_head", 12)
        if hidden % heads:
            raise reader.reject("n_head", f"it should divide n_embd = {hidden}")
        self._hidden = hidden
        return ModelSpec(
            architecture=self.architectures[0],
            vocab_size=reader.integer("vocab_size", 50_257),
            hidden_size=hidden,
            intermediate_size=reader.integer("n_inner", 4 * hidden),
            layers=reader.integer("n_layer", 12, most=4096),
            heads=heads,
            kv_heads=heads,
            head_dim=hidden // heads,
            max_positions=reader.integer("n_positions", 1024),
            norm_eps=reader.number("layer_norm_epsilon", 1e-5),
            rope=RopeSpec(),
            qkv_bias=True,
            output_bias=True,
            mlp_bias=True,
            tied_embeddings=reader.flag("tie_word_embeddings", True),
            dtype=read_dtype(reader),
            eos_token_ids=tuple(reader.token_ids("eos_token_id")),
        )

    def build(self, spec: ModelSpec) -> nn.Module:
        from turnout.models.decoder.decoder import Decoder, DecoderLayer
        from turnout.models.decoder.layers import Attention, PlainMLP
        from turnout.models.decoder.norms import LayerNorm
        from turnout.models.decoder.numbers import LearnedPositions
        from turnout.models.decoder.rope import RotaryByLayer, no_rotary

        return Decoder(
            spec,
            lambda layer: DecoderLayer(spec, Attention(spec, layer), PlainMLP(spec), LayerNorm),
            norm=LayerNorm,
            rotary=RotaryByLayer([no_rotary(spec.head_dim)], [0] * spec.layers),
            before=LearnedPositions(spec.max_positions, spec.hidden_size),
        )

    def parameter_count(self, spec: ModelSpec) -> int:
        hidden, inner = spec.hidden_size, spec.intermediate_size
        layer = 4 * hidden * hidden + 2 * hidden * inner + 9 * hidden + inner
        embeddings = (1 if spec.tied_embeddings else 2) * spec.vocab_size + spec.max_positions
        return spec.layers * layer + embeddings * hidden + 2 * hidden

    def rename(self, key: str) -> Renamed:
        key = key.removeprefix("transformer.")
        if key.endswith((".attn.bias", ".attn.masked_bias")):
            return None  # masks, which old checkpoints hold
        name = key
        for theirs, ours in NAMES.items():
            if theirs.startswith("."):
                name = name.replace(theirs, ours)
            elif name.startswith(theirs):
                name = ours + name.removeprefix(theirs)
        if ".c_attn." in name:
            return [
                Placement(
                    name.replace(".attn.c_attn.", f".self_attn.{part}_proj."),
                    self._third(number, matrix=name.endswith(".weight")),
                    transposed=name.endswith(".weight"),
                )
                for number, part in enumerate("qkv")
            ]
        # Conv1D keeps its weights as [inputs, outputs].
        return Placement(name, transposed=True) if "_proj.weight" in name else name

    def _third(self, number: int, *, matrix: bool) -> tuple[slice, ...]:
        columns = slice(number * self._hidden, (number + 1) * self._hidden)
        return (slice(None), columns) if matrix else (columns,)


def _check_supported(reader: ConfigReader) -> None:
    if reader.text("activation_function", "gelu_new") not in ACTIVATIONS:
        raise reader.reject("activation_function", f"it must be one of {', '.join(ACTIVATIONS)}")
    for key, plain in (
        ("scale_attn_weights", True),
        ("scale_attn_by_inverse_layer_idx", False),
        ("add_cross_attention", False),
    ):
        if reader.flag(key, plain) is not plain:
            raise reader.reject(key, f"it must be {str(plain).lower()}")
