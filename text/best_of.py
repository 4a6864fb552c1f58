"""Chooses the `n` best of `best_of` choices. The engine cannot, since it knows no stop strings."""

from __future__ import annotations

import math
from collections.abc import Sequence

__all__ = ["best_of"]


def best_of(logprobs: Sequence[float | None], count: int) -> list[int]:
    """The positions of the `count` highest cumulative log-probabilities, highest first, ties in order.

    All positions, in order, where there are no more than `count`.
    """
    positions = range(len(logprobs))
    if len(positions) <= count:
        return list(positions)
    known = [-math.inf if logprob is None else logprob for logprob in logprobs]
    return sorted(positions, key=lambda position: -known[position])[:count]
