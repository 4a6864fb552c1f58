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
    vocab_size: int
    hidden_size: int
    intermediate_size: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    max_positions: int
    norm_eps: float
    rope: RopeSpec
    qkv_bias: bool
    output_bias: bool
    mlp_bias: bool
    tied_embeddings: bool
    dtype: str
    """The checkpoint's own dtype, such as ``bfloat16``; what is computed in may differ."""
    eos_token_ids: tuple[int, ...] = ()
