"""Drawing from a distribution by an exponential race, whose noise belongs to tokens and not to ranks.

Token t arrives after E(t) / w(t), with w its weight and E(t) exponential noise; the first to arrive is drawn,
which happens with probability w(t) / sum of w. Two distributions that race with the same noise mostly give
the same token, the more alike they are the more often (Daliri, Musco and Suresh, "Coupling without
Communication and Drafter-Invariant Speculative Decoding", 2024). So a draft that is drawn with the noise of
its position is likely to be what the model itself draws there.

Noise for a whole vocabulary would cost more than the rest of a draw. The race is therefore run in two heats,
columns with their summed weights, then the tokens of the column that won::

    column    0   1   2   3        token t is in column t % columns, row t // columns;
            [ 0   1   2   3 ]      a heat has one noise for each column, the other one for each row
            [ 4   5   6   7 ]
            [ 8   9   -   - ]
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor

from turnout.sampling.noise import exponential

__all__ = ["race"]


def race(weights: Tensor, seeds: Tensor) -> Tensor:
    """A token for each row, int64 [rows], with probability proportional to its weight.

    weights: [rows, vocab_size], not negative, one at least positive in each row; seeds: of each row's noise,
    as `noise.seeds` gives them.
    """
    rows, vocabulary = weights.shape
    columns = math.isqrt(vocabulary)
    table = F.pad(weights, (0, -vocabulary % columns)).view(rows, -1, columns)
    noise = exponential(seeds, columns + table.shape[1])
    column = (table.sum(dim=1, dtype=torch.float64) / noise[:, :columns]).argmax(dim=1)
    chosen = table[torch.arange(rows, device=weights.device), :, column]
    place = (chosen / noise[:, columns:]).argmax(dim=1)
    # NaN beats all, even in the padding: it must not leave the vocabulary.
    return (place * columns + column).clamp_max(vocabulary - 1)
