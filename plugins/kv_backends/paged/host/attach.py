"""Memory for sequences that hold none: what is in the pool is attached to, what is swapped out comes back."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from turnout.core.interfaces.kv import Span
from turnout.core.types.plan import Move
from turnout.plugins.kv_backends.paged.host.block_tables import Table
from turnout.plugins.kv_backends.paged.host.blocks import Blocks

__all__ = ["Arrival", "Arrivals", "Place"]

Place = int
"""A block of the pool, or ``~block`` for one of host memory."""


class Arrival(NamedTuple):
    """A sequence that holds nothing yet and is about to."""

    span: Span
    places: list[Place]
    """Where its blocks below the span's start are."""


class Arrivals:
    """Several arrive at once, and what more than one of them finds swapped out comes back once."""

    def __init__(self, blocks: Blocks, block_size: int) -> None:
        self._blocks = blocks
        self._size = block_size

    def needed(self, arrivals: Sequence[Arrival]) -> int:
        """Idle blocks for what is in memory already and for what comes after it, copies included."""
        total, readers, writers = 0, set[Place](), dict[Place, int]()
        for span, places in arrivals:
            total += -(-span.upto // self._size) - len(places)
            whole = span.start // self._size
            readers.update(places[:whole])
            for place in places[whole:]:
                writers[place] = writers.get(place, 0) + 1
        total += sum(not self._held(place) for place in readers | writers.keys())
        for place, count in writers.items():
            # The last of those who write to it does so in place, unless others read it.
            total += count if place in readers or self._held(place) else count - 1
        return total

    def tables(self, arrivals: Sequence[Arrival], moves: list[Move]) -> list[Table]:
        """Hold the blocks below each one's start, and queue the moves that fill them."""
        # All that is here first: taking a block must not evict one that a later arrival counted on.
        for _, places in arrivals:
            for place in places:
                if place >= 0:
                    self._blocks.attach(place)
        filled = self._filled(arrivals)
        swapped_in: dict[Place, int] = {}
        return [array("i", self._fill(arrival, filled, swapped_in, moves)) for arrival in arrivals]

    def _filled(self, arrivals: Sequence[Arrival]) -> dict[Place, int]:
        """Positions to bring of each swapped-out block: siblings may be further in it than one another."""
        filled: dict[Place, int] = {}
        for span, places in arrivals:
            for index, place in enumerate(places):
                if place < 0:
                    mine = min(self._size, span.start - index * self._size)
                    filled[place] = max(filled.get(place, 0), mine)
        return filled

    def _held(self, place: Place) -> bool:
        return place >= 0 and self._blocks.holders[place] > 0

    def _fill(
        self, arrival: Arrival, filled: dict[Place, int], swapped_in: dict[Place, int], moves: list[Move]
    ) -> Iterable[int]:
        for place in arrival.places:
            if place >= 0:
                yield place
            elif place in swapped_in:
                self._blocks.hold(swapped_in[place])
                yield swapped_in[place]
            else:
                block = swapped_in[place] = self._blocks.take()
                moves.append(Move(~place * self._size, block * self._size, filled[place], "swap_in"))
                yield block
