"""Choosing the `n` best of `best_of` choices, here where stop strings have ended them."""

from __future__ import annotations

import math
from collections.abc import Sequence

__all__ = ["best"]


def best(logprobs: Sequence[float | None], count: int) -> list[int]:
    """The places of the `count` highest cumulative log-probabilities, highest first; of equals the earlier.

    All places, as they are, where there are no more.
    """
    places = range(len(logprobs))
    if len(places) <= count:
        return list(places)
    known = [-math.inf if logprob is None else logprob for logprob in logprobs]
    return sorted(places, key=lambda place: -known[place])[:count]
