"""Numbers of a flat batch to which each chunk of a step brings as many rows as it has tokens."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = ["Numbers", "padded", "ranges"]

Numbers = npt.NDArray[np.int64]


def ranges(starts: npt.NDArray[np.integer[Any]], lengths: npt.NDArray[np.integer[Any]]) -> Numbers:
    """``range(start, start + length)`` of each, one after the other: int64 [sum of lengths]."""
    firsts = lengths.cumsum() - lengths
    numbers: Numbers = np.arange(lengths.sum()) + np.repeat(starts - firsts, lengths)
    return numbers


def padded(count: int, least: int) -> int:
    """To one of few sizes: multiples of `least`, from eight times that on of twice as much, and so on.

    least: a power of two.
    """
    step = max(least, 1 << max(0, (count - 1).bit_length() - 3))
    return -(-count // step) * step
