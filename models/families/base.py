"""The shared part of families of decoder-only transformers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, TypeVar

from turnout.core.errors import ModelError
from turnout.core.interfaces.models import ModelFamily
from turnout.core.types.model_spec import ModelSpec, RopeSpec
from turnout.core.types.placement import Renamed
from turnout.models.config_reader import ConfigReader
from turnout.models.rope_spec import reachable_positions, read_rope

if TYPE_CHECKING:
    from torch import nn

__all__ = ["Biases", "DecoderFamily", "extended", "read_dtype", "read_spec"]

Spec = TypeVar("Spec", bound=ModelSpec)

MOST_LAYERS = 4096
MOST_POSITIONS = 2**28

DTYPES = ("float32", "float16", "bfloat16", "float64")


class DecoderFamily(ModelFamily):
    """Builds the shared decoder; a subclass reads the config."""

    def build(self, spec: ModelSpec) -> nn.Module:
        # Imported here, because listing plugins must not import torch.
        from turnout.models.decoder.decoder import Decoder

        return Decoder(spec)

    def parameter_count(self, spec: ModelSpec) -> int:
        """The decoder's, added up without building it."""
        hidden, heads, inner = spec.hidden_size, spec.heads * spec.head_dim, spec.intermediate_size
        keys = spec.kv_heads * spec.head_dim
        layer = 2 * hidden * (heads + keys) + 3 * hidden * inner + 2 * hidden
        layer += spec.qkv_bias * (heads + 2 * keys) + spec.output_bias * hidden
        layer += spec.mlp_bias * (2 * inner + hidden)
        embeddings = 1 if spec.tied_embeddings else 2
        return spec.layers * layer + embeddings * spec.vocab_size * hidden + hidden

    def rename(self, key: str) -> Renamed:
        # Old checkpoints hold the frequencies, which follow from the config.
        return None if key.endswith("rotary_emb.inv_freq") else key


@dataclass(frozen=True)
class Biases:
    """Which linear layers have a bias."""

    qkv: bool
    output: bool
    mlp: bool


def read_spec(architecture: str, config: Mapping[str, Any], biases: Biases) -> ModelSpec:
    """Reads the keys that Llama-like configs share. Raises ModelError, naming the key at fault.

    biases: which linear layers have one, as ``Biases(qkv=True, output=False, mlp=False)`` of this module.
    Refuses what Turnout's own layers do not compute, such as an unknown activation or rope scaling.
    """
    reader = ConfigReader(config)
    _check_supported(reader)
    heads = reader.integer("num_attention_heads")
    rope = read_rope(reader)
    return ModelSpec(
        architecture=architecture,
        vocab_size=reader.integer("vocab_size"),
        hidden_size=reader.integer("hidden_size"),
        intermediate_size=reader.integer("intermediate_size"),
        layers=reader.integer("num_hidden_layers", most=MOST_LAYERS),
        heads=heads,
        kv_heads=_kv_heads(reader, heads),
        head_dim=_head_dim(reader, heads),
        max_positions=_positions(reader, rope),
        norm_eps=reader.number("rms_norm_eps", 1e-6),
        rope=rope,
        qkv_bias=biases.qkv,
        output_bias=biases.output,
        mlp_bias=biases.mlp,
        tied_embeddings=reader.flag("tie_word_embeddings", False),
        dtype=read_dtype(reader),
        eos_token_ids=tuple(reader.token_ids("eos_token_id")),
        config=config,
    )


def extended(spec: ModelSpec, kind: type[Spec], **more: Any) -> Spec:
    """Returns `spec` as one of a subclass, whose own fields are `more`."""
    shared: dict[str, Any] = {field.name: getattr(spec, field.name) for field in fields(spec)}
    return kind(**shared, **more)


def _positions(reader: ConfigReader, rope: RopeSpec) -> int:
    positions = reachable_positions(rope, reader.integer("max_position_embeddings", most=MOST_POSITIONS))
    if positions > MOST_POSITIONS:
        raise ModelError(
            f"config.json: max_position_embeddings and its scaling give {positions:,} positions; at most "
            f"{MOST_POSITIONS:,} are supported"
        )
    return positions


def _check_supported(reader: ConfigReader) -> None:
    if reader.text("hidden_act", "silu") not in ("silu", "swish"):
        raise reader.reject("hidden_act", "the gate of the MLP must be 'silu'")


def _kv_heads(reader: ConfigReader, heads: int) -> int:
    kv_heads = reader.integer("num_key_value_heads", heads)
    if heads % kv_heads:
        raise ModelError(
            f"config.json: num_attention_heads = {heads} should be a multiple of "
            f"num_key_value_heads = {kv_heads}"
        )
    return kv_heads


def _head_dim(reader: ConfigReader, heads: int) -> int:
    hidden = reader.integer("hidden_size")
    if not reader.has("head_dim") and hidden % heads:
        raise ModelError(
            f"config.json: hidden_size = {hidden} should be a multiple of num_attention_heads = {heads}, "
            "or head_dim be given"
        )
    head_dim = reader.integer("head_dim", hidden // heads)
    if head_dim % 2:
        raise ModelError(f"config.json: head_dim = {head_dim} should be even for rotary embeddings")
    return head_dim


def read_dtype(reader: ConfigReader) -> str:
    """Returns the dtype that a checkpoint says it has."""
    dtype = reader.text("dtype", reader.text("torch_dtype", "float32")).removeprefix("torch.")
    if dtype not in DTYPES:
        raise ModelError(f"config.json: dtype = {dtype!r} is not supported, only {', '.join(DTYPES)}")
    return dtype
