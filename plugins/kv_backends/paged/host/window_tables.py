"""Block tables of layers with a window, which let go of the blocks that no later query sees.

::

    position     0 …                            computed − window      computed
    table        [ absent, absent, absent, absent, 12,  3,  8, … , 5 ]
                                                   ▲ first

An absent entry says nothing: attention never reads it. Blocks at a checkpoint stay cached as those of ended
sequences do, for a prefix is found only where the blocks of its last window are; others are evicted first.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Sequence
from typing import NamedTuple

from turnout.core.interfaces.kv import Span
from turnout.plugins.kv_backends.paged.host.block_tables import BlockTable, SequenceTables
from turnout.plugins.kv_backends.paged.host.blocks import BlockPool
from turnout.plugins.kv_backends.paged.host.checkpoints import NOWHERE, Checkpoints
from turnout.plugins.kv_backends.paged.host.kv_groups import first_seen

__all__ = ["ABSENT", "WindowTables"]

ABSENT = 0
"""The entry of a block that is let go: a block that exists, since a kernel may look up its address."""
PARTING = 4
"""A prompt that parts from another before its end finds what it shares, at once if the rest is shorter than
the window divided by this: questions about a document, mostly."""


class _Kept(NamedTuple):
    """Blocks of a sequence that stay cached: from `first` on, for prefixes that end up to `end`."""

    first: int
    end: int


class WindowTables(SequenceTables):
    """The block table of each sequence, of layers that see `window` positions."""

    def __init__(self, blocks: BlockPool, block_size: int, group: int, window: int) -> None:
        super().__init__(blocks, block_size, group)
        self.window = window
        self._parting = window // PARTING
        self._first: dict[int, int] = {}
        """The index of the first block that each sequence still has."""
        self._kept: dict[int, list[_Kept]] = {}
        self._left: dict[int, list[tuple[int, bytes]]] = {}
        """The blocks that each sequence let go at checkpoints, with their keys."""

    def first(self, sequence: int) -> int:
        return self._first[sequence]

    def first_seen(self, position: int) -> int:
        return first_seen(position, self.window, self._size)

    def enter(
        self, sequence: int, table: BlockTable, first: int = 0, checkpoints: Checkpoints = NOWHERE
    ) -> None:
        super().enter(sequence, table)
        self._first[sequence], self._left[sequence] = first, []
        start, branch, prompt = checkpoints
        if start > first and self._blocks.goes_on(table[start - 1]):
            start = prompt = 0  # a conversation, the next turn of which goes on from its end as well
        parts = self._parting // self._size
        self._kept[sequence] = [
            _Kept(self.first_seen(max(0, end - 1 - before) * self._size), end)
            for end, before in ((start, 0), (branch, 0), (prompt, parts))
            if end
        ]

    def passed(self, spans: Sequence[Span], attached: Container[int]) -> int:
        dropped: Counter[int] = Counter()
        for span in spans:
            table = self.of.get(span.sequence.id)
            if table is not None:
                dropped.update(table[self._first[span.sequence.id] : self.first_seen(span.start)])
        holders = self._blocks.holders
        return sum(holders[block] == count and block not in attached for block, count in dropped.items())

    def let_go(self, span: Span) -> None:
        sequence = span.sequence.id
        end = self.first_seen(span.start)
        first = self._first.get(sequence, end)
        if first >= end:
            return
        table, left = self.of[sequence], self._left[sequence]
        for index in range(first, end):
            block, kept = table[index], self._checkpoint(sequence, index)
            if kept and (key := self._blocks.hashes[block]) is not None:
                left.append((block, key))
            self._blocks.release(block, (kept or index + 1) * self._size, passed=not kept)
            table[index] = ABSENT
        self._first[sequence] = end

    def fork(self, parent: int, child: int) -> None:
        first = self._first[parent]
        self.of[child] = self.of[parent][:]
        for block in self.of[child][first:]:
            self._blocks.hold(block)
        self._first[child], self._kept[child], self._left[child] = first, self._kept[parent], []

    def release(self, sequence: int, reach: int) -> None:
        del self._kept[sequence]
        table, first = self.of.pop(sequence), self._first.pop(sequence)
        if first < reach // self._size <= len(table):
            self._blocks.end(table[reach // self._size - 1])
        for block in reversed(table[first:]):
            self._blocks.release(block, reach)
        # What is of use together is evicted together.
        for block, key in reversed(self._left.pop(sequence)):
            self._blocks.refresh(block, key)

    def _checkpoint(self, sequence: int, index: int) -> int:
        """The end of the checkpoint that keeps block `index`; 0: none does."""
        return next((end for first, end in self._kept[sequence] if first <= index < end), 0)
