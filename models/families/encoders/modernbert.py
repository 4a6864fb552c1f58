"""ModernBERT."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar

from turnout.core.types.model_spec import RopeSpec
from turnout.core.types.placement import Placement, Renamed
from turnout.models.config_reader import ConfigReader
from turnout.models.encoder.spec import EncoderSpec
from turnout.models.families.encoders.family import EncoderFamily, encoder_spec
from turnout.models.families.windows import FULL, SLIDING, layer_kinds

if TYPE_CHECKING:
    from torch import nn

__all__ = ["ModernBert"]

THETAS = {FULL: ("global_rope_theta", 160_000.0), SLIDING: ("local_rope_theta", 10_000.0)}


class ModernBert(EncoderFamily):
    """Rotary positions, GeGLU, norms before attention and MLP; two of three layers see a window."""

    architectures: ClassVar[tuple[str, ...]] = (
        "ModernBertModel",
        "ModernBertForMaskedLM",
        "ModernBertForSequenceClassification",
    )
    checkpoints: ClassVar[tuple[str, ...]] = (
        "Alibaba-NLP/gte-modernbert-base",
        "nomic-ai/modernbert-embed-base",
        "Alibaba-NLP/gte-reranker-modernbert-base",
    )
    prefix: ClassVar[str] = "model."
    names: ClassVar[Mapping[str, str]] = {
        "embeddings.tok_embeddings.": "embeddings.words.",
        "final_norm.": "norm.",
        ".attn_norm.": ".attention_norm.",
        ".attn.Wo.": ".attention.o_proj.",
        ".mlp.Wo.": ".mlp.down_proj.",
    }
    head_names: ClassVar[Mapping[str, str]] = {
        "head.dense.": "dense.",
        "head.norm.": "norm.",
        "classifier.": "out.",
    }
    other_heads: ClassVar[tuple[str, ...]] = ("decoder.",)
    _width = _inner = 0

    def encoder_spec(self, architecture: str, reader: ConfigReader) -> EncoderSpec:
        for key in ("hidden_activation", "classifier_activation"):
            if reader.text(key, "gelu") != "gelu":
                raise reader.reject(key, "it must be 'gelu'")
        spec = encoder_spec(
            architecture,
            reader,
            eps=("norm_eps", 1e-5),
            norm_bias=reader.flag("norm_bias", False),
            qkv_bias=reader.flag("attention_bias", False),
            output_bias=reader.flag("attention_bias", False),
            mlp_bias=reader.flag("mlp_bias", False),
            eos_token_ids=tuple(reader.token_ids("eos_token_id")),
        )
        if spec.head_dim % 2:
            raise reader.reject("num_attention_heads", "heads must be even for rotary embeddings")
        self._width, self._inner = spec.hidden_size, spec.intermediate_size
        full = spec.attention[0]
        # A window is counted from the middle to one side; ours counts the token itself, too.
        narrow = replace(full, window=reader.integer("local_attention", 128) // 2 + 1)
        return replace(spec, attention=tuple(narrow if k == SLIDING else full for k in _kinds(reader, spec)))

    def head_pooling(self, reader: ConfigReader) -> str:
        pooling = reader.text("classifier_pooling", "cls")
        if pooling not in ("cls", "mean"):
            raise reader.reject("classifier_pooling", "it must be 'cls' or 'mean'")
        return pooling

    def build(self, spec: EncoderSpec) -> nn.Module:  # type: ignore[override]  # its own spec comes back
        from turnout.models.decoder.rope import RotaryByLayer, make_rotary
        from turnout.models.encoder.encoder import Encoder, PreNormLayer
        from turnout.models.encoder.layers import (
            Embeddings,
            EncoderAttention,
            GeluGatedMLP,
            LayerNorm,
            ScoreLayers,
        )

        def norm() -> LayerNorm:
            return LayerNorm(spec.hidden_size, spec.norm_eps, bias=spec.norm_bias)

        reader = ConfigReader(spec.config)
        ropes = [make_rotary(_rope(reader, kind), spec.head_dim) for kind in (FULL, SLIDING)]
        bias = reader.flag("classifier_bias", False)
        return Encoder(
            spec,
            Embeddings(spec, positions=False),
            lambda layer: PreNormLayer(
                spec, EncoderAttention(spec, layer), GeluGatedMLP(spec), norms=layer > 0
            ),
            rotary=RotaryByLayer(ropes, [int(kind == SLIDING) for kind in _kinds(reader, spec)]),
            norm=norm(),
            head=None if spec.head is None else ScoreLayers(spec, "gelu", bias=bias, norm=norm()),
        )

    def rename(self, key: str) -> Renamed:
        name = super().rename(key)
        if not isinstance(name, str):
            return name
        if ".attn.Wqkv." in name:
            return _parts(name, ".attn.Wqkv.", [f".attention.{part}_proj." for part in "qkv"], self._width)
        if ".mlp.Wi." in name:
            return _parts(name, ".mlp.Wi.", [".mlp.gate_proj.", ".mlp.up_proj."], self._inner)
        return name


def _parts(name: str, theirs: str, ours: list[str], rows: int) -> list[Placement]:
    """Places a joined tensor: so many rows of it in each of several layers."""
    return [
        Placement(name.replace(theirs, part), (slice(number * rows, (number + 1) * rows),))
        for number, part in enumerate(ours)
    ]


def _kinds(reader: ConfigReader, spec: EncoderSpec) -> tuple[str, ...]:
    every = reader.integer("global_attn_every_n_layers", 3)
    return layer_kinds(reader, [SLIDING if layer % every else FULL for layer in range(spec.layers)])


def _rope(reader: ConfigReader, kind: str) -> RopeSpec:
    """Reads the rotary embedding of one kind of layer. Raises ModelError where it is scaled."""
    key, theta = THETAS[kind]
    own: Mapping[str, Any] = reader.mapping("rope_parameters").get(kind) or {}
    scaling = ConfigReader(own, f"{reader.where}: rope_parameters: {kind}")
    if scaling.text("rope_type", "default") != "default" or reader.has("rope_scaling"):
        raise reader.reject("rope_parameters", "rotary embeddings of encoders must not be scaled")
    return RopeSpec(theta=scaling.number("rope_theta", reader.number(key, theta)))
