"""How likely guesses are accepted: learnt for each sequence, with what all have in common as a start."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from turnout.core.types.request import Sequence as TokenSequence

__all__ = ["Acceptance"]

PRIOR = 0.7
"""Before anything is known: hopeful, so that it is tried."""
WEIGHT = 8.0
"""Guesses that the common rate counts for, in a sequence's own."""
WEIGHT_ALL = 10.0
"""Guesses that the prior counts for, in the common rate."""
KEEPS = 0.95
"""Of a sequence's evidence at each verification: about the last twenty count."""
KEEPS_ALL = 0.98
"""Of the common evidence."""
FADES = 0.97
"""Of a sequence's evidence each time that nothing is guessed for it: in the end it is tried again."""
FADES_ALL = 0.995
"""Of the common evidence, where nothing is guessed at all."""


@dataclass(slots=True)
class _Evidence:
    accepted: float = 0.0
    tried: float = 0.0

    def add(self, accepted: int, tried: int, keeps: float) -> None:
        self.accepted = keeps * self.accepted + accepted
        self.tried = keeps * self.tried + tried

    def rate(self, start: float, weight: float) -> float:
        return (self.accepted + weight * start) / (self.tried + weight)


class Acceptance:
    """The probability that a guess is accepted, given that those before it were."""

    def __init__(self) -> None:
        self._all = _Evidence()
        self._own: dict[TokenSequence, _Evidence] = {}

    def of(self, sequence: TokenSequence) -> float:
        own, common = self._own.get(sequence), self._all.rate(PRIOR, WEIGHT_ALL)
        return common if own is None else own.rate(common, WEIGHT)

    def learn(self, sequence: TokenSequence, guessed: int, accepted: int) -> None:
        """`accepted` of its guesses were right; of the others only the first was tried."""
        tried = min(guessed, accepted + 1)
        self._all.add(accepted, tried, KEEPS_ALL)
        self._own.setdefault(sequence, _Evidence()).add(accepted, tried, KEEPS)

    def idle(self, sequences: Iterable[TokenSequence], *, everyone: bool) -> None:
        """Nothing is guessed for these; `everyone`: nor for others."""
        for sequence in sequences:
            if own := self._own.get(sequence):
                own.add(0, 0, FADES)
        if everyone:
            self._all.add(0, 0, FADES_ALL)

    def forget(self, sequences: Iterable[TokenSequence]) -> None:
        for sequence in sequences:
            self._own.pop(sequence, None)
