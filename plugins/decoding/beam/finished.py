"""The finished beams of a request, and the decision when a search is over.

The rules are those of ``GenerationMixin._beam_search`` in transformers 5: a finished beam's score is its
total divided by its length to the power of the length penalty, where the length is that of the output with
its stop token.
"""

from __future__ import annotations

import math
from bisect import insort

from turnout.core.types.decision import Choice
from turnout.core.types.request import Request

__all__ = ["FinishedBeams", "finished_beams"]


class FinishedBeams:
    """The best finished beams of a request, as many as the search is wide."""

    def __init__(self, request: Request) -> None:
        params = request.params
        self._width = request.width
        self._penalty = params.length_penalty
        self._early = params.early_stopping
        self._longest = request.limit - len(request.prompt)
        self._ranked: list[tuple[float, Choice]] = []

    @property
    def choices(self) -> list[Choice]:
        """The finished beams, best first."""
        return [choice for _, choice in self._ranked]

    def score(self, total: float, length: int) -> float:
        return total / math.pow(length, self._penalty)

    def admits(self, score: float) -> bool:
        """Whether a beam of this score is among the best."""
        return not self._full or score > self._worst

    def add(self, score: float, choice: Choice) -> None:
        insort(self._ranked, (score, choice), key=lambda entry: -entry[0])
        del self._ranked[self._width :]

    def settled(self, best: float, length: int) -> bool:
        """Whether the search is over if the best running beam has this total after `length` tokens.

        The beam's future score is estimated from its present length, though with a penalty above 0 each
        further token may raise it. With ``never`` and a penalty above 0 it is estimated from the greatest
        length that the beam can reach.
        """
        if not self._full:
            return False
        if self._early is True:
            return True
        longest = self._early == "never" and self._penalty > 0
        return self.score(best, self._longest if longest else length) <= self._worst

    @property
    def _full(self) -> bool:
        return len(self._ranked) >= self._width

    @property
    def _worst(self) -> float:
        return self._ranked[-1][0]


def finished_beams(request: Request) -> FinishedBeams:
    """The finished beams of a request, which keeps them in its `state` from step to step."""
    if not isinstance(request.state, FinishedBeams):
        request.state = FinishedBeams(request)
    return request.state
