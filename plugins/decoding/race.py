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
import struct
from collections.abc import Sequence
from hashlib import blake2b

import numpy as np
import numpy.typing as npt
import torch
import torch.nn.functional as F
from torch import Tensor

from turnout.kernels.gpu.staging import carry

__all__ = ["noise_key", "race", "uniform"]


def noise_key(seed: int, index: int, position: int, purpose: bytes = b"") -> int:
    """64 bits: a stable function of the request's seed, the choice, the position and the purpose."""
    packed = struct.pack("<qqq", seed, index, position)
    return int.from_bytes(blake2b(packed, digest_size=8, person=purpose).digest(), "little")


def uniform(key: int) -> float:
    """In [0, 1)."""
    return float(key >> 11) / float(2**53)


def race(weights: Tensor, keys: Sequence[int]) -> Tensor:
    """A token for each row, int64 [rows], with probability proportional to its weight.

    weights: [rows, vocab_size], not negative, one at least positive in each row; keys: one for each row.
    """
    rows, vocabulary = weights.shape
    columns = math.isqrt(vocabulary)
    table = F.pad(weights, (0, -vocabulary % columns)).view(rows, -1, columns)
    noise = carry(_exponential(keys, columns + table.shape[1]), weights.device)
    column = (table.sum(dim=1, dtype=torch.float64) / noise[:, :columns]).argmax(dim=1)
    chosen = table[torch.arange(rows, device=weights.device), :, column]
    place = (chosen / noise[:, columns:]).argmax(dim=1)
    # NaN beats all, even in the padding: it must not leave the vocabulary.
    return (place * columns + column).clamp_max(vocabulary - 1)


def _exponential(keys: Sequence[int], lanes: int) -> npt.NDArray[np.float64]:
    """[keys, lanes], from SplitMix64 generators (Steele, Lea and Flood, OOPSLA 2014) seeded by the keys."""
    start = np.array(keys, dtype=np.uint64)[:, None]
    x = start + np.arange(1, lanes + 1, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    x = x ^ (x >> np.uint64(31))
    return np.asarray(-np.log(((x >> np.uint64(11)).astype(np.float64) + 0.5) / 2**53))
