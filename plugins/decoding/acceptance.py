"""How likely guesses are accepted: learnt for each sequence, with what all have in common as a start."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from turnout.core.request import Sequence as TokenSequence

__all__ = ["Acceptance"]

PRIOR = 0.7
"""Before anything is known: hopeful, so that it is tried."""
WEIGHT = 4.0
"""Guesses that a start counts for."""
KEEPS = 0.8
"""Of a sequence's evidence at each verification: about the last five count."""
KEEPS_ALL = 0.98
"""Of the common evidence."""
FADES = 0.999
"""Of the common evidence in a step that guesses nothing: in the end it is tried again."""


@dataclass(slots=True)
class _Evidence:
    accepted: float = 0.0
    tried: float = 0.0

    def add(self, accepted: int, tried: int, keeps: float) -> None:
        self.accepted = keeps * self.accepted + accepted
        self.tried = keeps * self.tried + tried

    def rate(self, start: float) -> float:
        return (self.accepted + WEIGHT * start) / (self.tried + WEIGHT)


class Acceptance:
    """The probability that a guess is accepted, given that those before it were."""

    def __init__(self) -> None:
        self._all = _Evidence()
        self._own: dict[TokenSequence, _Evidence] = {}

    def of(self, sequence: TokenSequence) -> float:
        own, common = self._own.get(sequence), self._all.rate(PRIOR)
        return common if own is None else own.rate(common)

    def learn(self, sequence: TokenSequence, guessed: int, accepted: int) -> None:
        """`accepted` of its guesses were right; of the others only the first was tried."""
        tried = min(guessed, accepted + 1)
        self._all.add(accepted, tried, KEEPS_ALL)
        self._own.setdefault(sequence, _Evidence()).add(accepted, tried, KEEPS)

    def idle(self) -> None:
        """A step in which nothing was guessed."""
        self._all.add(0, 0, FADES)

    def forget(self, sequences: Iterable[TokenSequence]) -> None:
        for sequence in sequences:
            self._own.pop(sequence, None)
