"""The shared part of families of encoders."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar

from turnout.core.interfaces.models import ModelFamily
from turnout.core.types.layer_attention import LayerAttention
from turnout.core.types.model_spec import RopeSpec
from turnout.core.types.placement import Renamed
from turnout.models.config_reader import ConfigReader
from turnout.models.encoder.spec import ACTIVATIONS, EncoderSpec
from turnout.models.families.base import MOST_LAYERS, MOST_POSITIONS, read_dtype
from turnout.models.score_head import read_head

if TYPE_CHECKING:
    from torch import nn

__all__ = ["BertLikeFamily", "EncoderFamily", "encoder_spec", "read_activation"]


class EncoderFamily(ModelFamily):
    """Reads what encoders' configs share, and names their tensors. A subclass says what is particular.

    Heads of other tasks than classification are left out: hidden states are what is asked for.
    """

    prefix: ClassVar[str] = ""
    """What the names of an encoder's own tensors begin with, in checkpoints that also have a head."""
    names: ClassVar[Mapping[str, str]] = {}
    """Parts of their names, each with what stands in its place in the module."""
    head_names: ClassVar[Mapping[str, str]] = {}
    """The linear layers and norms of the classification head, by their names without the prefix."""
    other_heads: ClassVar[tuple[str, ...]] = ("cls.", "lm_head.", "qa_outputs.", "pooler.")
    """What the names of other heads' tensors begin with, which are skipped."""

    def __init__(self) -> None:
        self._scores = False
        """Whether the checkpoint's classification head is built."""

    def spec(self, config: Mapping[str, Any]) -> EncoderSpec:
        reader = ConfigReader(config)
        spec = self.encoder_spec(config["architectures"][0], reader)
        self._scores = spec.architecture.endswith("ForSequenceClassification")
        return replace(spec, head=read_head(reader, self.head_pooling(reader))) if self._scores else spec

    @abstractmethod
    def encoder_spec(self, architecture: str, reader: ConfigReader) -> EncoderSpec:
        """Reads the config, but for the classification head."""

    def head_pooling(self, reader: ConfigReader) -> str:
        """Returns the name of the pooling whose vector the classification head reads."""
        return "cls"

    def rename(self, key: str) -> Renamed:
        key = key.removeprefix(self.prefix)
        if key.endswith(("position_ids", "token_type_ids", "rotary_emb.inv_freq")):
            return None  # numbers from 0 on, which old checkpoints hold
        for theirs, ours in self.head_names.items():
            if key.startswith(theirs):
                return f"head.{ours}{key.removeprefix(theirs)}" if self._scores else None
        if key.startswith(self.other_heads):
            return None
        # Checkpoints that were converted from TensorFlow name a norm's weight and bias so.
        if "LayerNorm" in key:
            key = key.replace(".gamma", ".weight").replace(".beta", ".bias")
        for theirs, ours in self.names.items():
            key = key.replace(theirs, ours)
        return key


class BertLikeFamily(EncoderFamily):
    """Builds encoders with learned positions and a norm behind each residual."""

    head_activation: ClassVar[str] = "tanh"
    """What is between the two linear layers of the classification head."""

    def build(self, spec: EncoderSpec) -> nn.Module:  # type: ignore[override]  # its own spec comes back
        from turnout.models.encoder.encoder import Encoder, PostNormLayer
        from turnout.models.encoder.layers import Embeddings, EncoderAttention, EncoderMLP, ScoreLayers

        return Encoder(
            spec,
            Embeddings(spec, positions=True),
            lambda layer: PostNormLayer(spec, EncoderAttention(spec, layer), EncoderMLP(spec)),
            head=None if spec.head is None else ScoreLayers(spec, self.head_activation),
        )


def encoder_spec(
    architecture: str,
    reader: ConfigReader,
    *,
    keys: Mapping[str, str] | None = None,
    biases: bool = True,
    eps: tuple[str, float] = ("layer_norm_eps", 1e-12),
    **more: Any,
) -> EncoderSpec:
    """Reads the numbers of an encoder.

    keys: what a config calls ``hidden_size`` and the like, where it has other names; biases: whether linear
    layers have one; eps: the key and the default of the norms' epsilon; more: further fields of the spec.
    """
    key = {name: name for name in ("hidden_size", "intermediate_size", "num_hidden_layers")}
    key |= {"num_attention_heads": "num_attention_heads", **(keys or {})}
    hidden, heads = reader.integer(key["hidden_size"]), reader.integer(key["num_attention_heads"])
    if hidden % heads:
        raise reader.reject(key["num_attention_heads"], f"it should divide {key['hidden_size']} = {hidden}")
    layers = reader.integer(key["num_hidden_layers"], most=MOST_LAYERS)
    first = more.pop("first_position", 0)
    positions = reader.integer("max_position_embeddings", most=MOST_POSITIONS) - first
    if positions <= 0:
        raise reader.reject("max_position_embeddings", f"the first {first} positions are never used")
    plain = LayerAttention(heads, heads, hidden // heads, hidden // heads, causal=False)
    fields: dict[str, Any] = {
        "architecture": architecture,
        "vocab_size": reader.integer("vocab_size"),
        "hidden_size": hidden,
        "intermediate_size": reader.integer(key["intermediate_size"]),
        "layers": layers,
        "heads": heads,
        "kv_heads": heads,
        "head_dim": hidden // heads,
        "max_positions": positions,
        "norm_eps": reader.number(*eps),
        "rope": RopeSpec(),
        "qkv_bias": biases,
        "output_bias": biases,
        "mlp_bias": biases,
        "tied_embeddings": False,
        "dtype": read_dtype(reader),
        "attention": (plain,) * layers,
        "encoder": True,
        "config": reader.config,
        "first_position": first,
    }
    return EncoderSpec(**{**fields, **more})


def read_activation(reader: ConfigReader, key: str, default: str = "gelu") -> str:
    """Returns the activation of an MLP. Raises ModelError for one that is not known."""
    name = reader.text(key, default)
    if name not in ACTIVATIONS:
        raise reader.reject(key, f"it must be one of {', '.join(ACTIVATIONS)}")
    return name
