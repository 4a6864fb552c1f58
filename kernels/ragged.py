"""Index arithmetic of a flat batch, in which each chunk of a step has as many rows as tokens."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = ["Numbers", "padded", "ranges"]

Numbers = npt.NDArray[np.int64]


def ranges(starts: npt.NDArray[np.integer[Any]], lengths: npt.NDArray[np.integer[Any]]) -> Numbers:
    """Returns ``range(start, start + length)`` of each chunk, one after the other: int64 [sum of lengths]."""
    if (lengths == 1).all():  # all decode
        return starts.astype(np.int64)
    firsts = lengths.cumsum() - lengths
    numbers: Numbers = np.arange(lengths.sum()) + np.repeat(starts - firsts, lengths)
    return numbers


def padded(count: int, least: int) -> int:
    """Rounds `count` up to one of few sizes.

    Those are multiples of `least`, a power of two; from eight times that on of twice as much, and so on.
    """
    step = max(least, 1 << max(0, (count - 1).bit_length() - 3))
    return -(-count // step) * step
