"""Drawing tokens: each row's distribution races with the noise of its request, choice and position."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from turnout.core.interfaces.logits_processor import Row
from turnout.sampling.distributions import token_weights
from turnout.sampling.exponential_race import race
from turnout.sampling.noise import noise_key, seeds

__all__ = ["draw", "key_of", "seeds_of"]


def draw(logits: Tensor, rows: Sequence[Row]) -> Tensor:
    """A token for each row. logits: [rows, vocab_size] fp32; returns int64 [rows]."""
    weights = token_weights(logits, [row.params for row in rows])
    return race(weights, seeds_of(rows, weights.device))


def seeds_of(rows: Sequence[Row], device: torch.device) -> Tensor:
    """Of the noise that each row's token is drawn with, int64 [rows]."""
    return seeds([key_of(row) for row in rows], device)


def key_of(row: Row, purpose: bytes = b"") -> int:
    """Of the noise for a row's token; other decisions at the same position need another `purpose`."""
    return noise_key(row.request.spec.seed, row.index, row.position, purpose)
