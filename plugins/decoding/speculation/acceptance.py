"""Acceptance rates of draft tokens, and the speedup to expect from them.

If a draft token is accepted with probability a, d of them give (1 - a**(d + 1)) / (1 - a) tokens on average.
They cost as many forwards of the draft as the longest draft has tokens, and a step that is larger by all
draft tokens.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from turnout.core.types.request import Sequence as TokenSequence

__all__ = ["AcceptanceRates", "ExpectedSpeedup", "expected_speedups"]

PRIOR = 0.7
"""The rate before anything was measured: high, so that draft tokens are tried."""
PRIOR_WEIGHT = 10.0
"""Draft tokens that the prior counts for in the common rate."""
COMMON_WEIGHT = 8.0
"""Draft tokens that the common rate counts for in a sequence's own rate."""
KEPT, COMMON_KEPT = 0.95, 0.98
"""Share of the evidence kept at each verification: of a sequence's own, about the last twenty count."""
KEPT_UNUSED, COMMON_KEPT_UNUSED = 0.97, 0.995
"""Share kept when nothing is drafted, for a sequence or for any: in the end draft tokens are tried again."""


@dataclass(slots=True)
class _Evidence:
    accepted: float = 0.0
    tried: float = 0.0

    def add(self, accepted: int, tried: int, kept: float) -> None:
        self.accepted = kept * self.accepted + accepted
        self.tried = kept * self.tried + tried

    def rate(self, prior: float, weight: float) -> float:
        return (self.accepted + weight * prior) / (self.tried + weight)


class AcceptanceRates:
    """The probability that a draft token is accepted if all draft tokens before it were.

    Learnt for each sequence; the rate that all sequences have in common is the prior of each.
    """

    def __init__(self) -> None:
        self._common = _Evidence()
        self._own: dict[TokenSequence, _Evidence] = {}

    def of(self, sequence: TokenSequence) -> float:
        own, common = self._own.get(sequence), self._common.rate(PRIOR, PRIOR_WEIGHT)
        return common if own is None else own.rate(common, COMMON_WEIGHT)

    def learn(self, sequence: TokenSequence, drafted: int, accepted: int) -> None:
        """The first `accepted` draft tokens were right; of the others only the first was tried."""
        tried = min(drafted, accepted + 1)
        self._common.add(accepted, tried, COMMON_KEPT)
        self._own.setdefault(sequence, _Evidence()).add(accepted, tried, KEPT)

    def skip(self, sequences: Iterable[TokenSequence], *, everyone: bool) -> None:
        """A step drafted nothing for `sequences`; `everyone`: nor for any other."""
        for sequence in sequences:
            if own := self._own.get(sequence):
                own.add(0, 0, KEPT_UNUSED)
        if everyone:
            self._common.add(0, 0, COMMON_KEPT_UNUSED)

    def forget(self, sequences: Iterable[TokenSequence]) -> None:
        for sequence in sequences:
            self._own.pop(sequence, None)


# ------------------------------------------------------------------ what draft tokens bring

MIN_PROBABILITIES = 0.95 * 0.75 ** np.arange(12)
"""A token is drafted if the probability that it is reached and accepted is at least this: each threshold
gives one choice of draft lengths."""

Lengths = npt.NDArray[np.int64]
Rates = npt.NDArray[np.float64]


class ExpectedSpeedup(NamedTuple):
    """The expected outcome of a step with some draft lengths."""

    lengths: list[int]
    """Draft tokens for each sequence."""
    tokens: float
    """Produced by the step, for all sequences together."""
    seconds: float

    @property
    def rate(self) -> float:
        return self.tokens / self.seconds


def expected_speedups(
    rates: Rates, limits: Lengths, step_seconds: Callable[[int], float], forward_seconds: float
) -> list[ExpectedSpeedup]:
    """A step without draft tokens first, then steps with more and more of them.

    rates, limits: [sequences], acceptance rate and maximum draft length; step_seconds: the time of a step by
    its number of draft tokens; forward_seconds: the time of one forward of the draft.
    """
    rates = rates.clip(0.01, 0.99)
    reached = np.log(MIN_PROBABILITIES)[:, None] / np.log(rates)
    choices = np.minimum(limits, reached).astype(np.int64)  # [choices, sequences], growing
    expected = ((1 - rates ** (choices + 1)) / (1 - rates)).sum(axis=1).tolist()
    found = [ExpectedSpeedup([0] * len(rates), len(rates), step_seconds(0))]
    last = 0
    sums, longest = choices.sum(axis=1).tolist(), choices.max(axis=1).tolist()
    for number, (draft_tokens, length) in enumerate(zip(sums, longest, strict=True)):
        if draft_tokens > last:
            seconds = step_seconds(draft_tokens) + forward_seconds * length
            found.append(ExpectedSpeedup(choices[number].tolist(), expected[number], seconds))
            last = draft_tokens
    return found
