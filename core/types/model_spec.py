"""The shape of a model: numbers, no tensors."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

__all__ = ["ModelSpec", "RopeSpec"]


@dataclass(frozen=True)
class RopeSpec:
    """Rotary position embedding: base frequency and how it is scaled to longer contexts.

    ``kind`` is one of ``default``, ``linear``, ``dynamic``, ``yarn``, ``llama3``; ``parameters`` are the
    checkpoint's own ``rope_parameters`` (``factor``, ``original_max_position_embeddings``, …).
    """

    theta: float = 10_000.0
    kind: str = "default"
    parameters: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class ModelSpec:
    """The shape of a decoder-only transformer, read from a checkpoint's ``config.json``."""

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
