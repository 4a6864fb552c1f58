"""Draws from a distribution by an exponential race, whose noise belongs to tokens, not to ranks.

Token t arrives after E(t) / w(t), where w(t) is its weight and E(t) exponential noise. The first token to
arrive is drawn; each is the first with probability w(t) / sum of w. Two distributions that race with the same
noise mostly give the same token, the more often the more alike they are (Daliri, Musco and Suresh, "Coupling
without Communication and Drafter-Invariant Speculative Decoding", 2024). So a draft token drawn with the
noise of its position is likely to be the token that the model itself draws there.

Noise for a whole vocabulary would cost more than the rest of a draw. Therefore the race has two heats: one of
columns with their summed weights, one of the tokens in the winning column::

    column    0   1   2   3        token t is in column t % columns, row t // columns;
            [ 0   1   2   3 ]      the first heat has noise for each column, the second for each row
            [ 4   5   6   7 ]
            [ 8   9   -   - ]
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor

from turnout.sampling.noise import exponential

__all__ = ["exponential_race"]


def exponential_race(weights: Tensor, seeds: Tensor) -> Tensor:
    """Draws a token for each row, int64 [rows], with a probability proportional to its weight.

    weights: [rows, vocab_size], not negative, at least one of each row positive; seeds: int64 [rows], as
    `seed_tensor` returns them.
    """
    rows, vocabulary = weights.shape
    columns = math.isqrt(vocabulary)
    table = F.pad(weights, (0, -vocabulary % columns)).view(rows, -1, columns)
    noise = exponential(seeds, columns + table.shape[1])
    column = (table.sum(dim=1, dtype=torch.float64) / noise[:, :columns]).argmax(dim=1)
    chosen = table[torch.arange(rows, device=weights.device), :, column]
    row = (chosen / noise[:, columns:]).argmax(dim=1)
    # `argmax` prefers NaN, which may be in the padding: clamped, the token stays within the vocabulary.
    return (row * columns + column).clamp_max(vocabulary - 1)
