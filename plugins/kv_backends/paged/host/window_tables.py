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

from turnout.core.interfaces.kv import Span
from turnout.plugins.kv_backends.paged.host.block_tables import BlockTable, SequenceTables
from turnout.plugins.kv_backends.paged.host.blocks import BlockPool
from turnout.plugins.kv_backends.paged.host.kv_groups import first_seen

__all__ = ["ABSENT", "WindowTables"]

ABSENT = 0
"""The entry of a block that is let go: a block that exists, since a kernel may look up its address."""


class WindowTables(SequenceTables):
    """The block table of each sequence, of layers that see `window` positions."""

    def __init__(self, blocks: BlockPool, block_size: int, group: int, window: int) -> None:
        super().__init__(blocks, block_size, group)
        self.window = window
        self._first: dict[int, int] = {}
        """The index of the first block that each sequence still has."""
        self._checkpoints: dict[int, tuple[int, ...]] = {}

    def first(self, sequence: int) -> int:
        return self._first[sequence]

    def first_seen(self, position: int) -> int:
        return first_seen(position, self.window, self._size)

    def enter(self, sequence: int, table: BlockTable, first: int = 0, ends: Sequence[int] = ()) -> None:
        super().enter(sequence, table)
        self._first[sequence], self._checkpoints[sequence] = first, tuple(ends)

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
        table, checkpoints = self.of[sequence], self._checkpoints[sequence]
        for index in range(first, end):
            kept = next((ending for ending in checkpoints if self._sees(ending, index)), None)
            reach = index + 1 if kept is None else kept
            self._blocks.release(table[index], reach * self._size, passed=kept is None)
            table[index] = ABSENT
        self._first[sequence] = end

    def fork(self, parent: int, child: int) -> None:
        first = self._first[parent]
        self.of[child] = self.of[parent][:]
        for block in self.of[child][first:]:
            self._blocks.hold(block)
        self._first[child], self._checkpoints[child] = first, self._checkpoints[parent]

    def release(self, sequence: int, reach: int) -> None:
        del self._checkpoints[sequence]
        for block in reversed(self.of.pop(sequence)[self._first.pop(sequence) :]):
            self._blocks.release(block, reach)

    def _sees(self, ending: int, index: int) -> bool:
        """Whether a sequence that goes on behind `ending` blocks needs block `index`.

        Or one that goes on behind one block less, as where the very same prompt comes again.
        """
        return self.first_seen((ending - 1) * self._size) <= index < ending
