"""Block tables of sequences: growth, and copy on write of shared blocks."""

from __future__ import annotations

from array import array
from collections.abc import Container, Sequence
from typing import TypeAlias

from turnout.core.interfaces.kv import Span
from turnout.core.types.plan import Move
from turnout.plugins.kv_backends.paged.host.blocks import BlockPool
from turnout.plugins.kv_backends.paged.host.checkpoints import NOWHERE, Checkpoints

__all__ = ["BlockTable", "SequenceTables"]

BlockTable: TypeAlias = "array[int]"
"""Blocks of the pool, of typecode "i": the device half joins the memory of many tables."""


class SequenceTables:
    """The block table of each sequence that holds memory, in the order of its positions."""

    window: int | None = None
    """How many positions a query sees; None: all before its own."""

    def __init__(self, blocks: BlockPool, block_size: int, group: int = 0) -> None:
        self.of: dict[int, BlockTable] = {}
        """The block table of each sequence id."""
        self.group = group
        """The number of the layers' group."""
        self._blocks = blocks
        self._size = block_size

    def first(self, sequence: int) -> int:
        """The index of the first block that a sequence has; entries before say nothing."""
        return 0

    def first_seen(self, position: int) -> int:
        """The index of the first block that a query at `position` reads."""
        return 0

    def covers(self, spans: Sequence[Span]) -> bool:
        """Whether each span is one more token in a block that is its sequence's own.

        A quick check for what nearly every sequence needs in nearly every step.
        """
        holders, hashes, tables, size = self._blocks.holders, self._blocks.hashes, self.of, self._size
        for sequence, start, upto in spans:
            table = tables.get(sequence.id)
            if table is None or upto - start != 1:
                return False
            index = start // size
            if index >= len(table) or holders[table[index]] != 1 or hashes[table[index]] is not None:
                return False
        return True

    def append_block(self, spans: Sequence[Span]) -> bool:
        """Appends a block if the only span is one more token behind full blocks; False: nothing was done.

        A quick way for the second most frequent need.
        """
        if not self._blocks.available or not self.ends_before(spans):
            return False
        self.of[spans[0].sequence.id].append(self._blocks.take(self.group))
        return True

    def ends_before(self, spans: Sequence[Span]) -> bool:
        """Whether the only span is one more token behind full blocks."""
        if len(spans) != 1:
            return False
        ((sequence, start, upto),) = spans
        table = self.of.get(sequence.id)
        return table is not None and upto - start == 1 and start == len(table) * self._size

    def passed(self, spans: Sequence[Span], attached: Container[int]) -> int:
        """How many blocks `let_go` makes available, if those that are `attached` at the same time are not."""
        return 0

    def let_go(self, span: Span) -> None:
        """Lets go of the blocks that neither the span's tokens nor later ones see."""

    def enter(
        self, sequence: int, table: BlockTable, first: int = 0, checkpoints: Checkpoints = NOWHERE
    ) -> None:
        """Begins a sequence's table. first: see `first`."""
        self.of[sequence] = table

    def blocks_needed(self, spans: Sequence[Span]) -> int:
        """Blocks to take for sequences that have a table: to extend it, and for copies on write."""
        total, writers = 0, dict[int, int]()
        for span in spans:
            table = self.of.get(span.sequence.id)
            if table is not None:
                total += max(0, self._count(span.upto) - len(table))
                for index in self._shared(span):
                    writers[table[index]] = writers.get(table[index], 0) + 1
        # If all holders of a shared block write to it, the last one writes in place.
        return total + sum(min(count, self._blocks.holders[block] - 1) for block, count in writers.items())

    def extend(self, span: Span, moves: list[Move]) -> None:
        """Gives the sequence a block of its own for each position of the span; appends the copies' moves."""
        self._copy_shared(span, moves)
        table = self.of[span.sequence.id]
        for block in table[span.start // self._size :]:
            self._blocks.unregister(block)
        table.extend(self._blocks.take(self.group) for _ in range(self._count(span.upto) - len(table)))

    def fork(self, parent: int, child: int) -> None:
        self.of[child] = self.of[parent][:]
        for block in self.of[child]:
            self._blocks.hold(block)

    def release(self, sequence: int, reach: int) -> None:
        """Releases a sequence's blocks. reach: the tokens of its registered prefix."""
        # In reverse: the end of a prefix is useless without its start, and is to be evicted first.
        for block in reversed(self.of.pop(sequence)):
            self._blocks.release(block, reach)

    # -------------------------------------------------------------- details

    def _count(self, tokens: int) -> int:
        """Blocks for so many tokens."""
        return -(-tokens // self._size)

    def _shared(self, span: Span) -> list[int]:
        """Indices in the table of blocks that the span writes to and other sequences hold, too."""
        table = self.of[span.sequence.id]
        first, last = span.start // self._size, min(self._count(span.upto), len(table))
        return [index for index in range(first, last) if self._blocks.holders[table[index]] > 1]

    def _copy_shared(self, span: Span, moves: list[Move]) -> None:
        """Copy on write: replaces each shared block that the span writes to by a block of its own."""
        table, size = self.of[span.sequence.id], self._size
        for index in self._shared(span):
            shared, fresh = table[index], self._blocks.take(self.group)
            filled = span.start - index * size
            if filled > 0:
                moves.append(Move(shared * size, fresh * size, min(filled, size)))
            self._blocks.release(shared)
            table[index] = fresh
