"""What guessing ahead promises: tokens and seconds of the next step, for each sensible choice of depths.

With probability a that a guess is accepted, d guesses bring (1 - a**(d + 1)) / (1 - a) tokens on average.
They cost as many forwards of the draft as the deepest of them, and a step that is larger by all of them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

__all__ = ["Depths", "Outlook", "outlooks"]

WORTH = 0.95 * 0.75 ** np.arange(12)
"""A guess is made where it is reached and accepted at least that often: one choice of depths for each."""

Depths = npt.NDArray[np.int64]
Rates = npt.NDArray[np.float64]


class Outlook(NamedTuple):
    depths: list[int]
    """Guesses for each sequence."""
    tokens: float
    """Expected from the step, over all of them."""
    seconds: float

    @property
    def rate(self) -> float:
        return self.tokens / self.seconds


def outlooks(rates: Rates, most: Depths, step: Callable[[int], float], forward: float) -> list[Outlook]:
    """First without guesses, then with more and more.

    rates: with which guesses for each sequence are accepted; most: guesses for each; step: its seconds by
    its number of guesses; forward: a forward of the draft, in seconds.
    """
    rates = rates.clip(0.01, 0.99)
    reach = np.log(WORTH)[:, None] / np.log(rates)
    choices = np.minimum(most, reach).astype(np.int64)  # [choices, sequences], growing
    expected = ((1 - rates ** (choices + 1)) / (1 - rates)).sum(axis=1).tolist()
    found = [Outlook([0] * len(rates), len(rates), step(0))]
    last = 0
    sums, deepest = choices.sum(axis=1).tolist(), choices.max(axis=1).tolist()
    for number, (guesses, depth) in enumerate(zip(sums, deepest, strict=True)):
        if guesses > last:
            seconds = step(guesses) + forward * depth
            found.append(Outlook(choices[number].tolist(), expected[number], seconds))
            last = guesses
    return found
