"""Random draws: each row's distribution, and the noise of its request, choice and position, give a token."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from turnout.core.interfaces.logits_processor import Row
from turnout.sampling.by_rows import by_rows
from turnout.sampling.distributions import token_weights
from turnout.sampling.exponential_race import exponential_race
from turnout.sampling.noise import noise_key, seed_tensor

__all__ = ["draw", "noise_key_of", "noise_seeds_of"]


def draw(logits: Tensor, rows: Sequence[Row]) -> Tensor:
    """Draws a token for each row, int64 [rows], from the distribution that its request's parameters make.

    The noise depends on the request's seed, the choice and the position alone, so a draw depends neither on
    the batch nor on preemption. logits: fp32 [rows, vocab_size], as `adjust` returned them.
    """
    params, seeds = [row.params for row in rows], noise_seeds_of(rows, logits.device)
    return by_rows(
        lambda some, part: exponential_race(token_weights(some, params[part]), seeds[part]), logits
    )


def noise_seeds_of(rows: Sequence[Row], device: torch.device) -> Tensor:
    """Seeds of the noise that the rows' tokens are drawn with, int64 [rows]."""
    return seed_tensor([noise_key_of(row) for row in rows], device)


def noise_key_of(row: Row, purpose: bytes = b"") -> int:
    """The key of the noise for a row's token; other decisions at the same position need another `purpose`."""
    return noise_key(row.request.spec.seed, row.index, row.position, purpose)
