"""The host half: assigns each sequence a row of fixed length, in integers.

::

    row     [ sinks ][ ring of the latest positions, and room for draft tokens ]
    slot     0 .. s   s + (position - s) % ring
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from turnout.core.interfaces.kv import Span
from turnout.core.types.messages import KVSnapshot
from turnout.core.types.plan import Move
from turnout.core.types.request import Sequence as TokenSequence

__all__ = ["DRAFT_TOKENS", "Layout", "Rows"]

DRAFT_TOKENS = 32
"""The most positions that may be written and then rejected without overwriting the window, which is also the
most that speculation drafts."""


@dataclass(frozen=True)
class Layout:
    """The slots of a row, by position."""

    sinks: int
    window: int

    @property
    def ring(self) -> int:
        return self.window + DRAFT_TOKENS

    @property
    def length(self) -> int:
        """The length of a row, in positions."""
        return self.sinks + self.ring

    def slot(self, position: int) -> int:
        """Returns the slot of a position in its row."""
        return position if position < self.sinks else self.sinks + (position - self.sinks) % self.ring

    def remembered(self, end: int) -> list[int]:
        """Returns the positions below `end` that queries from `end` on may see."""
        recent = range(max(self.sinks, end - self.window + 1), end)
        return [*range(min(self.sinks, end)), *recent]

    def kept(self, start: int, end: int) -> list[int]:
        """Returns the positions of a step's chunk that the same chunk does not overwrite."""
        return [p for p in range(start, end) if p < self.sinks or p >= end - self.ring]


class Rows:
    """Assigns rows to sequences. Siblings share a row until they write."""

    prefixes = None

    def __init__(self, count: int, layout: Layout) -> None:
        self.layout = layout
        self.row_of: dict[int, int] = {}
        """By sequence id: its row. The device half reads them."""
        self.count = count
        self._free = list(reversed(range(count)))
        self._holders = [0] * count
        self._sequences: dict[int, TokenSequence] = {}
        self._moves: list[Move] = []

    # -------------------------------------------------------------- queries

    @property
    def capacity(self) -> int:
        return self.count * self.layout.length

    @property
    def free(self) -> int:
        return len(self._free) * self.layout.length

    def holds(self, length: int, sequences: int) -> bool:
        return sequences <= self.count

    def cached(self, sequence: TokenSequence) -> int:
        return 0

    def swappable(self, sequences: Sequence[TokenSequence]) -> int:
        return 0

    def fits(self, spans: Sequence[Span]) -> bool:
        held = [self.row_of.get(span.sequence.id) for span in spans]
        writers = Counter(row for row in held if row is not None)
        # If all holders of a shared row write to it, the last one keeps it.
        copies = sum(min(count, self._holders[row] - 1) for row, count in writers.items())
        return held.count(None) + copies <= len(self._free)

    # -------------------------------------------------------------- transitions

    def reserve(self, spans: Sequence[Span]) -> bool:
        if not self.fits(spans):
            return False
        for sequence, _, _ in spans:
            row = self.row_of.get(sequence.id)
            if row is None or self._holders[row] > 1:
                self._give_own_row(sequence, row)
        return True

    def commit(self, sequence: TokenSequence, upto: int) -> None:
        """Does nothing: other sequences cannot find rows."""

    def fork(self, parent: TokenSequence, child: TokenSequence) -> None:
        row = self.row_of[child.id] = self.row_of[parent.id]
        self._holders[row] += 1
        self._sequences[child.id] = child

    def release(self, sequences: Iterable[TokenSequence], *, swap_out: bool = False) -> None:
        for sequence in sequences:
            row = self.row_of.pop(sequence.id, None)
            if row is not None:
                del self._sequences[sequence.id]
                self._drop(row)

    def drain(self) -> list[Move]:
        moves, self._moves = self._moves, []
        return moves

    def snapshot(self) -> KVSnapshot:
        length, computed = self.layout.length, dict[int, int]()
        for id, sequence in self._sequences.items():
            row = self.row_of[id]
            computed[row] = max(computed.get(row, 0), min(length, sequence.computed))
        shared = sum(holders > 1 for holders in self._holders)
        held = self.count - len(self._free)
        states = [("shared", shared), ("held", held - shared), ("free", len(self._free))]
        return KVSnapshot(
            capacity=self.capacity,
            free=self.free,
            held=held * length,
            shared=shared * length,
            computed=sum(computed.values()),
            cached=0,
            pinned=0,
            swap=0,
            swapped=0,
            lookups=0,
            hits=0,
            evictions=0,
            unit=length,
            states=[(state, rows) for state, rows in states if rows],
        )

    # -------------------------------------------------------------- details

    def _give_own_row(self, sequence: TokenSequence, shared: int | None) -> None:
        """Gives the sequence a new row, with a copy of the one that it shared."""
        row = self._free.pop()
        self._holders[row] = 1
        if shared is not None:
            length = self.layout.length
            self._moves.append(Move(shared * length, row * length, length))
            self._drop(shared)
        self.row_of[sequence.id], self._sequences[sequence.id] = row, sequence

    def _drop(self, row: int) -> None:
        self._holders[row] -= 1
        if not self._holders[row]:
            self._free.append(row)
