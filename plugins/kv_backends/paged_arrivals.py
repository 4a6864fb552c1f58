"""Memory for sequences that hold none: what is in the pool is attached to, what is parked comes back."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from turnout.core.interfaces import Span
from turnout.core.plan import Move
from turnout.plugins.kv_backends.paged_blocks import Blocks

__all__ = ["Arrival", "Arrivals", "Place"]

Place = int | None
"""A block of the pool; None: only parked."""


class Arrival(NamedTuple):
    """A sequence that holds nothing yet and is about to."""

    span: Span
    places: list[Place]
    """Where its blocks below the span's start are."""
    parked: list[int]
    """Its blocks in host memory."""


class Arrivals:
    """Several arrive at once, and what more than one of them finds parked comes back once."""

    def __init__(self, blocks: Blocks, block_size: int) -> None:
        self._blocks = blocks
        self._size = block_size

    def needed(self, arrivals: Sequence[Arrival]) -> int:
        """Idle blocks for what is in memory already and for what comes after it, copies included."""
        fresh = sum(-(-span.upto // self._size) - len(places) for span, places, _ in arrivals)
        revived = {
            block
            for _, places, _ in arrivals
            for block in places
            if block is not None and not self._blocks.holders[block]
        }
        # Those who write to what came back get a copy each, but for the last one.
        return fresh + len(revived) + sum(max(1, writers) for writers in self._restored(arrivals).values())

    def tables(self, arrivals: Sequence[Arrival], moves: list[Move]) -> list[list[int]]:
        """Hold the blocks below each one's start, and queue the moves that fill them."""
        # All that is here first: taking a block must not evict one that a later arrival counted on.
        for _, places, _ in arrivals:
            for block in places:
                if block is not None:
                    self._blocks.attach(block)
        restored: dict[int, int] = {}
        return [list(self._fill(arrival, restored, moves)) for arrival in arrivals]

    def _restored(self, arrivals: Iterable[Arrival]) -> dict[int, int]:
        """Parked blocks that come back, each with how many will write to it."""
        writers: dict[int, int] = {}
        for span, places, parked in arrivals:
            for index, place in enumerate(places):
                if place is None:
                    writes = (index + 1) * self._size > span.start
                    writers[parked[index]] = writers.get(parked[index], 0) + writes
        return writers

    def _fill(self, arrival: Arrival, restored: dict[int, int], moves: list[Move]) -> Iterable[int]:
        span, places, parked = arrival
        for index, place in enumerate(places):
            if place is not None:
                yield place
            elif (source := parked[index]) in restored:
                self._blocks.hold(restored[source])
                yield restored[source]
            else:
                target = restored[source] = self._blocks.take()
                filled = min(self._size, span.start - index * self._size)
                moves.append(Move(source * self._size, target * self._size, filled, "restore"))
                yield target
