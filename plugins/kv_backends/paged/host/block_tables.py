"""Block tables: growing them, and copying on write what is shared."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from typing import TypeAlias

from turnout.core.interfaces.kv import Span
from turnout.core.types.plan import Move
from turnout.plugins.kv_backends.paged.host.blocks import Blocks

__all__ = ["Table", "Tables"]

Table: TypeAlias = "array[int]"
"""Blocks of the pool, typecode "i": the device half takes many tables at once, as they are in memory."""


class Tables:
    """The blocks of each sequence that holds memory, in the order of its positions."""

    def __init__(self, blocks: Blocks, block_size: int) -> None:
        self.of: dict[int, Table] = {}
        """By sequence id."""
        self._blocks = blocks
        self._size = block_size

    def cover(self, spans: Sequence[Span]) -> bool:
        """One more token in a block of its own: what nearly every sequence asks in nearly every step."""
        holders, keys, tables, size = self._blocks.holders, self._blocks.keys, self.of, self._size
        for sequence, start, upto in spans:
            table = tables.get(sequence.id)
            if table is None or upto - start != 1:
                return False
            index = start // size
            if index >= len(table) or holders[table[index]] != 1 or keys[table[index]] is not None:
                return False
        return True

    def lengthen(self, spans: Sequence[Span]) -> bool:
        """One more token behind full blocks, with a block to spare: what comes next most often."""
        if len(spans) != 1 or not self._blocks.idle:
            return False
        ((sequence, start, upto),) = spans
        table = self.of.get(sequence.id)
        if table is None or upto - start != 1 or start != len(table) * self._size:
            return False
        table.append(self._blocks.take())
        return True

    def needed(self, spans: Sequence[Span]) -> int:
        """Idle blocks for those that have a table: to grow it, and to copy what they share and write to."""
        total, writers = 0, dict[int, int]()
        for span in spans:
            table = self.of.get(span.sequence.id)
            if table is not None:
                total += max(0, self._count(span.upto) - len(table))
                for index in self._shared(span):
                    writers[table[index]] = writers.get(table[index], 0) + 1
        # Of those who write to a shared block, the last holder left writes in place.
        return total + sum(min(count, self._blocks.holders[block] - 1) for block, count in writers.items())

    def extend(self, span: Span, moves: list[Move]) -> None:
        """Have a block of its own for each position of `span`, and queue the copies that takes."""
        self._own(span, moves)
        table = self.of[span.sequence.id]
        for block in table[span.start // self._size :]:
            self._blocks.forget(block)
        table.extend(self._blocks.take() for _ in range(self._count(span.upto) - len(table)))

    def fork(self, parent: int, child: int) -> None:
        self.of[child] = self.of[parent][:]
        for block in self.of[child]:
            self._blocks.hold(block)

    def drop(self, sequence: int, reach: int) -> None:
        """Give back a sequence's blocks, `reach` tokens of which are a prefix that others may want."""
        # Last block first: a prefix is of use from its start, so its end should be given up earlier.
        for block in reversed(self.of.pop(sequence)):
            self._blocks.drop(block, reach)

    # -------------------------------------------------------------- details

    def _count(self, tokens: int) -> int:
        """Blocks for so many tokens."""
        return -(-tokens // self._size)

    def _shared(self, span: Span) -> list[int]:
        """Places in its table that a sequence is about to write to while others hold them too."""
        table = self.of[span.sequence.id]
        first, last = span.start // self._size, min(self._count(span.upto), len(table))
        return [index for index in range(first, last) if self._blocks.holders[table[index]] > 1]

    def _own(self, span: Span, moves: list[Move]) -> None:
        """Copy on write: what is shared and about to be written is replaced by a block of its own."""
        table, size = self.of[span.sequence.id], self._size
        for index in self._shared(span):
            shared, fresh = table[index], self._blocks.take()
            filled = span.start - index * size
            if filled > 0:
                moves.append(Move(shared * size, fresh * size, min(filled, size)))
            self._blocks.drop(shared)
            table[index] = fresh
