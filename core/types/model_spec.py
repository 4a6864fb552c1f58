"""The shape of a model: numbers, no tensors."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from turnout.core.types.layer_attention import AttentionFeature, LayerAttention
from turnout.core.types.pooling import ScoreHead

__all__ = ["ModelSpec", "RopeSpec"]


@dataclass(frozen=True)
class RopeSpec:
    """Rotary position embedding: base frequency and how it is scaled to longer contexts.

    ``kind`` is one of ``default``, ``linear``, ``dynamic``, ``yarn``, ``longrope``, ``llama3``;
    ``parameters`` are the checkpoint's own ``rope_parameters`` (``factor``,
    ``original_max_position_embeddings``, …).
    """

    theta: float = 10_000.0
    kind: str = "default"
    parameters: Mapping[str, Any] = field(default_factory=dict)

    def turned_width(self, head_dim: int) -> int:
        """Returns how many numbers of a head turn: of a share of it as many as transformers rounds it to."""
        return int(head_dim * self.parameters.get("partial_rotary_factor", 1.0))


@dataclass(frozen=True)
class ModelSpec:
    """The shape of a transformer, read from a checkpoint's ``config.json``."""

    architecture: str
    """The architecture that ``config.json`` names."""
    vocab_size: int
    """How many columns the logits have."""
    hidden_size: int
    """The width of the residual stream."""
    intermediate_size: int
    """The width inside an MLP."""
    layers: int
    """How many layers."""
    heads: int
    """How many heads of queries."""
    kv_heads: int
    """How many heads of keys and of values; divides ``heads``."""
    head_dim: int
    """The width of a head."""
    max_positions: int
    """The longest context, in tokens."""
    norm_eps: float
    """The epsilon of the RMS norms."""
    rope: RopeSpec
    """How positions are rotated."""
    qkv_bias: bool
    """Whether the query, key and value layers have a bias."""
    output_bias: bool
    """Whether attention's output layer has a bias."""
    mlp_bias: bool
    """Whether the MLP's layers have a bias."""
    tied_embeddings: bool
    """Whether the output layer is the embedding."""
    dtype: str
    """The dtype of the checkpoint, such as ``bfloat16``; the engine may compute in another."""
    eos_token_ids: tuple[int, ...] = ()
    """The tokens that end a text."""
    attention: tuple[LayerAttention, ...] = ()
    """How each layer attends, one rule a layer; empty: every layer attends plainly, in the shape that
    ``heads``, ``kv_heads`` and ``head_dim`` give."""
    encoder: bool = False
    """Whether it attends in both directions: it generates nothing, and a step computes whole prompts."""
    generates: bool = True
    """Whether the module has ``logits``. Of an encoder, which never generates, it says nothing."""
    first_layer: int = 0
    """How many layers of the model come before these, of a stage of a pipeline; 0: they are the first."""
    head: ScoreHead | None = None
    """The classification head, whose module has ``score(pooled)``, [rows, hidden_size] to [rows, labels]."""
    config: Mapping[str, Any] = field(default_factory=dict, repr=False, compare=False)
    """The checkpoint's ``config.json``, for what a family's `build` needs and no field has; where a family's
    `spec` leaves it empty, the server fills it in."""

    def layer_attention(self) -> tuple[LayerAttention, ...]:
        """Returns the rule of every layer."""
        plain = LayerAttention(self.heads, self.kv_heads, self.head_dim, self.head_dim)
        return self.attention or (plain,) * self.layers

    def attention_features(self) -> frozenset[AttentionFeature]:
        """Returns what some layer asks for beyond plain attention.

        ``layer_shapes`` is among them where layers differ in the shape of their keys and values, or from
        ``heads``, ``kv_heads`` and ``head_dim``.
        """
        plain = (self.heads, self.kv_heads, self.head_dim)
        rules = self.layer_attention()
        asked = frozenset().union(*(rule.features() for rule in rules))
        uneven = any((rule.heads, rule.kv_heads, rule.key_dim) != plain for rule in rules)
        return asked | {"layer_shapes"} if uneven else asked
