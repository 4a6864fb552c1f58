"""Blocks of time, of which each is one measurement.

Requests that share a queue are not independent measurements, but stretches that are long beside a request
nearly are ("batch means", Law and Carson 1979). Both arms serve in the same stretch, so what the machine and
the traffic are like just then hits both: they are compared stretch by stretch.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from turnout.lab.compare.statistics.metrics import Figures, figures_of
from turnout.lab.results.record import Record
from turnout.lab.results.summary import Accumulator

__all__ = ["Block", "BlockSize"]


EXACT = 100_000
"""Values of an arm that percentiles are exact of: a block lasts as long as one arm gets too few requests."""


@dataclass(frozen=True)
class BlockSize:
    """The least that a block holds, in both measures."""

    seconds: float = 30.0
    requests: int = 20
    """Arrivals in each arm."""


class Block:
    """Requests that arrived in one stretch, in bounded memory.

    Arrivals alone say when it ends, not how they are served.
    """

    def __init__(self, arms: Sequence[str], began: float) -> None:
        self.began = began
        self._served = {arm: Accumulator(exact=EXACT) for arm in arms}
        self._arrived: Counter[str] = Counter()
        self._open = 0
        self._over = False

    def arrive(self, arm: str) -> None:
        self._arrived[arm] += 1
        self._open += 1

    def leave(self, arm: str, records: Sequence[Record]) -> None:
        self._open -= 1
        for record in records:
            self._served[arm].add(record)

    def full(self, size: BlockSize, now: float) -> bool:
        enough = all(self._arrived[arm] >= size.requests for arm in self._served)
        return enough and now - self.began >= size.seconds

    def end(self) -> None:
        """Take no more arrivals."""
        self._over = True

    @property
    def complete(self) -> bool:
        """All requests that arrived have ended: figures of the block do not leave out the slow ones."""
        return self._over and not self._open

    def figures(self) -> dict[str, Figures]:
        """Latencies in milliseconds, by arm."""
        return {arm: figures_of(served.summary(0.0)) for arm, served in self._served.items()}
