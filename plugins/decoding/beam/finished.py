"""The finished beams of a request, and when to stop looking for better ones.

The rules are those of ``GenerationMixin._beam_search`` in transformers 5: a finished beam's score is its
total divided by its length to the power of the length penalty, the length being that of the output, its
stop token included.
"""

from __future__ import annotations

import math
from bisect import insort

from turnout.core.types.decision import Choice
from turnout.core.types.request import Request

__all__ = ["Finished", "finished_of"]


class Finished:
    """The best of them, as many as the search is wide."""

    def __init__(self, request: Request) -> None:
        params = request.params
        self._width = request.width
        self._penalty = params.length_penalty
        self._early = params.early_stopping
        self._longest = request.limit - len(request.prompt)
        self._ranked: list[tuple[float, Choice]] = []

    @property
    def choices(self) -> list[Choice]:
        """Best first."""
        return [choice for _, choice in self._ranked]

    def score(self, total: float, length: int) -> float:
        return total / math.pow(length, self._penalty)

    def admits(self, score: float) -> bool:
        """Does a beam of this score belong to the best?"""
        return not self._full or score > self._worst

    def add(self, score: float, choice: Choice) -> None:
        insort(self._ranked, (score, choice), key=lambda entry: -entry[0])
        del self._ranked[self._width :]

    def settled(self, best: float, length: int) -> bool:
        """Is the search over, where the best running beam has this total after `length` tokens?

        The score it will have is guessed. With ``never`` from the longest it can get, where that is to its
        advantage; else from its length now, though with a penalty above 0 every token more may raise it.
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


def finished_of(request: Request) -> Finished:
    """Those of `request`, which carries them from step to step."""
    if not isinstance(request.state, Finished):
        request.state = Finished(request)
    return request.state
