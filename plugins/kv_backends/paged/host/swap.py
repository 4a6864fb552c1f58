"""Swap memory of the paged backend: blocks of preempted sequences, in host memory.

A block that several sequences hold is swapped out once: blocks that siblings share, and blocks with the same
hash. ::

    table of A     [ 7,  2,  9 ]           swapped A    [ 0,  1,  2 ]
    table of B     [ 7,  2,  4 ]    ──▶    swapped B    [ 0,  1,  3 ]     blocks 9 and 4 are their own tails
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from turnout.core.types.plan import Move
from turnout.plugins.kv_backends.paged.host.block_hashes import key_of
from turnout.plugins.kv_backends.paged.host.block_tables import BlockTable

__all__ = ["BlockHolding", "SwapBlocks", "SwappedBlocks"]


class BlockHolding(NamedTuple):
    """The blocks that a sequence holds in the pool, for layers of one group."""

    sequence: int
    table: BlockTable
    hashes: Sequence[bytes]
    """The hashes of its committed leading blocks."""
    computed: int
    """Positions."""
    group: int = 0
    first: int = 0
    """The index of the first block that it needs to go on."""


class SwappedBlocks(NamedTuple):
    """The host memory of a sequence, with its positions up to `length`, for layers of one group."""

    blocks: list[int]
    length: int
    first: int = 0
    """The index of its first block in the sequence."""

    def at(self, index: int) -> int | None:
        """The host memory of the sequence's block `index`, if it has any."""
        place = index - self.first
        return self.blocks[place] if 0 <= place < len(self.blocks) else None


class _FilledBlock(NamedTuple):
    """A block of a sequence, with computed positions in it."""

    name: bytes | int
    """Its key, or the block's number if it has none: blocks of one name have the same contents."""
    block: int
    length: int


class SwapBlocks:
    """Keeps account of host memory and orders the copies; the caller releases the blocks of the pool."""

    def __init__(self, blocks: int, block_size: int) -> None:
        self._size = block_size
        self._total = blocks
        self._free = list(reversed(range(blocks)))
        self._users = [0] * blocks
        self._block_of: dict[bytes, int] = {}
        self._hash_of: dict[int, bytes] = {}
        self._swapped: dict[tuple[int, int], SwappedBlocks] = {}
        """By sequence and group."""

    @property
    def used(self) -> int:
        """Blocks."""
        return self._total - len(self._free)

    def of(self, sequence: int, group: int = 0) -> SwappedBlocks | None:
        return self._swapped.get((sequence, group))

    def cost(self, holdings: Sequence[BlockHolding]) -> int:
        """Positions that `swap_out` would copy; 0: it would do nothing."""
        missing = self._missing(holdings)
        return sum(block.length for block in missing) if len(missing) <= len(self._free) else 0

    def swap_out(self, holdings: Sequence[BlockHolding]) -> list[Move] | None:
        """Takes host memory for all that is computed, and returns the moves to fill it.

        None if there is no room; nothing has changed then.
        """
        missing = self._missing(holdings)
        if len(missing) > len(self._free):
            return None
        new: dict[bytes | int, int] = {}
        moves = []
        for name, block, length in missing:
            new[name] = target = self._take(name)
            moves.append(Move(block * self._size, target * self._size, length, "swap_out"))
        for holding in holdings:
            if holding.computed:
                self._enter(holding, new)
        return moves

    def forget(self, sequence: int, groups: int = 1) -> None:
        """Gives up the host memory of a sequence, if it has any, for so many groups."""
        for group in range(groups):
            swapped = self._swapped.pop((sequence, group), None)
            for block in swapped.blocks if swapped else ():
                self._users[block] -= 1
                if not self._users[block]:
                    self._give_back(block)

    # -------------------------------------------------------------- details

    def _missing(self, holdings: Sequence[BlockHolding]) -> list[_FilledBlock]:
        """The blocks to copy, one for each name: that of the sibling that has filled it furthest."""
        missing: dict[bytes | int, _FilledBlock] = {}
        for holding in holdings:
            for filled in self._filled_blocks(holding):
                known = missing.get(filled.name)
                if filled.name not in self._block_of and (known is None or known.length < filled.length):
                    missing[filled.name] = filled
        return list(missing.values())

    def _filled_blocks(self, holding: BlockHolding) -> list[_FilledBlock]:
        _, table, hashes, computed, group, first = holding
        size = self._size
        filled = []
        for index in range(first, -(-computed // size)):
            name = key_of(hashes[index], group) if index < len(hashes) else table[index]
            filled.append(_FilledBlock(name, table[index], min(size, computed - index * size)))
        return filled

    def _take(self, name: bytes | int) -> int:
        block = self._free.pop()
        if isinstance(name, bytes):
            self._block_of[name], self._hash_of[block] = block, name
        return block

    def _enter(self, holding: BlockHolding, new: dict[bytes | int, int]) -> None:
        blocks = []
        for name, _, _ in self._filled_blocks(holding):
            block = self._block_of[name] if isinstance(name, bytes) else new[name]
            self._users[block] += 1
            blocks.append(block)
        swapped = SwappedBlocks(blocks, holding.computed, holding.first)
        self._swapped[holding.sequence, holding.group] = swapped

    def _give_back(self, block: int) -> None:
        block_hash = self._hash_of.pop(block, None)
        if block_hash is not None:
            del self._block_of[block_hash]
        self._free.append(block)
