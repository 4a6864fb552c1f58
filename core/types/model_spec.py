"""What the engine knows of a model: numbers, no tensors."""

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
    """Of ``config.json``."""
    vocab_size: int
    """Columns of the logits."""
    hidden_size: int
    """Width of the residual stream."""
    intermediate_size: int
    """Width inside an MLP."""
    layers: int
    """How many."""
    heads: int
    """Of queries."""
    kv_heads: int
    """Of keys and of values; divides ``heads``."""
    head_dim: int
    """Numbers in a head."""
    max_positions: int
    """Longest context."""
    norm_eps: float
    """Of the RMS norms."""
    rope: RopeSpec
    """How positions are rotated."""
    qkv_bias: bool
    """Do those layers have one?"""
    output_bias: bool
    """Does attention's output layer?"""
    mlp_bias: bool
    """Do the MLP's layers?"""
    tied_embeddings: bool
    """The output layer is the embedding."""
    dtype: str
    """The checkpoint's own dtype, such as ``bfloat16``; what is computed in may differ."""
    eos_token_ids: tuple[int, ...] = ()
    """Tokens that end a text."""
