"""Host memory where the blocks of preempted sequences wait, in blocks of the pool's size.

What several hold is swapped out once: blocks that siblings share, and blocks known by a prefix key, whoever
swapped them out. ::

    table of A     [ 7,  2,  9 ]           swapped A    [ 0,  1,  2 ]
    table of B     [ 7,  2,  4 ]    ──▶    swapped B    [ 0,  1,  3 ]     block 9 and 4: tails, their own
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from turnout.core.types.plan import Move
from turnout.plugins.kv_backends.paged.host.block_tables import Table

__all__ = ["Holding", "SwapBlocks", "SwappedBlocks"]


class Holding(NamedTuple):
    """What a sequence holds in the pool."""

    sequence: int
    table: Table
    keys: Sequence[bytes]
    """Of its leading blocks, as many as are known by one."""
    computed: int
    """Positions."""


class SwappedBlocks(NamedTuple):
    """What of a sequence is in host memory: its first `length` positions."""

    blocks: list[int]
    length: int


class _Piece(NamedTuple):
    """A block of a sequence, with computed positions in it."""

    name: bytes | int
    """Its key, or the block's number: pieces of one name are the same."""
    block: int
    length: int


class SwapBlocks:
    """Which sequence has what where. It orders copies; the pool's blocks are the caller's to free."""

    def __init__(self, blocks: int, block_size: int) -> None:
        self._size = block_size
        self._total = blocks
        self._free = list(reversed(range(blocks)))
        self._users = [0] * blocks
        self._block_of: dict[bytes, int] = {}
        self._key_of: dict[int, bytes] = {}
        self._swapped: dict[int, SwappedBlocks] = {}

    @property
    def used(self) -> int:
        """Blocks."""
        return self._total - len(self._free)

    def of(self, sequence: int) -> SwappedBlocks | None:
        return self._swapped.get(sequence)

    def cost(self, holdings: Sequence[Holding]) -> int:
        """Positions that `swap_out` would copy; 0: it would do nothing."""
        missing = self._missing(holdings)
        return sum(piece.length for piece in missing) if len(missing) <= len(self._free) else 0

    def swap_out(self, holdings: Sequence[Holding]) -> list[Move] | None:
        """Keep all that is computed of them. None, and nothing happened: there is no room."""
        missing = self._missing(holdings)
        if len(missing) > len(self._free):
            return None
        placed: dict[bytes | int, int] = {}
        moves = []
        for name, block, length in missing:
            placed[name] = target = self._take(name)
            moves.append(Move(block * self._size, target * self._size, length, "swap_out"))
        for holding in holdings:
            if holding.computed:
                self._keep(holding, placed)
        return moves

    def leave(self, sequence: int) -> None:
        """Forget a sequence; fine if nothing of it is swapped out."""
        swapped = self._swapped.pop(sequence, None)
        for block in swapped.blocks if swapped else ():
            self._users[block] -= 1
            if not self._users[block]:
                self._give_back(block)

    # -------------------------------------------------------------- details

    def _missing(self, holdings: Sequence[Holding]) -> list[_Piece]:
        """The longest piece of each name that is not swapped out yet: siblings may be further in a block."""
        missing: dict[bytes | int, _Piece] = {}
        for holding in holdings:
            for piece in self._pieces(holding):
                known = missing.get(piece.name)
                if piece.name not in self._block_of and (known is None or known.length < piece.length):
                    missing[piece.name] = piece
        return list(missing.values())

    def _pieces(self, holding: Holding) -> list[_Piece]:
        _, table, keys, computed = holding
        size = self._size
        pieces = []
        for index, start in enumerate(range(0, computed, size)):
            name = keys[index] if index < len(keys) else table[index]
            pieces.append(_Piece(name, table[index], min(size, computed - start)))
        return pieces

    def _take(self, name: bytes | int) -> int:
        block = self._free.pop()
        if isinstance(name, bytes):
            self._block_of[name], self._key_of[block] = block, name
        return block

    def _keep(self, holding: Holding, placed: dict[bytes | int, int]) -> None:
        blocks = []
        for name, _, _ in self._pieces(holding):
            block = self._block_of[name] if isinstance(name, bytes) else placed[name]
            self._users[block] += 1
            blocks.append(block)
        self._swapped[holding.sequence] = SwappedBlocks(blocks, holding.computed)

    def _give_back(self, block: int) -> None:
        key = self._key_of.pop(block, None)
        if key is not None:
            del self._block_of[key]
        self._free.append(block)
