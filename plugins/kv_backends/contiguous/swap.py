"""Host memory where the contiguous backend keeps what is computed of preempted sequences."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from turnout.core.types.plan import Move
from turnout.plugins.kv_backends.contiguous.first_fit import Gaps
from turnout.plugins.kv_backends.contiguous.slabs import Slab

__all__ = ["SwapSlabs", "SwappedSlab"]

Holding = tuple[int, Slab, int]
"""A sequence's id, its slab, and how many positions of it are computed."""


@dataclass(eq=False, slots=True)
class _Piece:
    """Positions in host memory: the computed ones of a slab, no more."""

    start: int
    length: int
    users: int = 0
    """Sequences that shared the slab, each of which will bring back a copy of its own."""


class SwappedSlab(NamedTuple):
    """What of a sequence is in host memory: its first `length` positions."""

    piece: _Piece
    length: int

    @property
    def start(self) -> int:
        return self.piece.start


class SwapSlabs:
    """Which sequence has what where: pieces of exactly the computed length, first fit."""

    def __init__(self, size: int) -> None:
        self._gaps = Gaps(size)
        self._size = size
        self._swapped: dict[int, SwappedSlab] = {}

    @property
    def used(self) -> int:
        return self._size - self._gaps.free

    def of(self, sequence: int) -> SwappedSlab | None:
        return self._swapped.get(sequence)

    def cost(self, holdings: Sequence[Holding]) -> int:
        """Positions that `swap_out` would copy; 0: it would do nothing."""
        lengths = list(_lengths(holdings).values())
        return sum(lengths) if self._gaps.hold(lengths) else 0

    def swap_out(self, holdings: Sequence[Holding]) -> list[Move] | None:
        """Keep all that is computed of them. None, and nothing happened: there is no room."""
        lengths = _lengths(holdings)
        starts = self._gaps.take(list(lengths.values()))
        if starts is None:
            return None
        pieces = {
            slab: _Piece(start, length) for (slab, length), start in zip(lengths.items(), starts, strict=True)
        }
        for sequence, slab, computed in holdings:
            if computed:
                pieces[slab].users += 1
                self._swapped[sequence] = SwappedSlab(pieces[slab], computed)
        return [Move(slab.start, piece.start, piece.length, "swap_out") for slab, piece in pieces.items()]

    def leave(self, sequence: int) -> None:
        """Forget a sequence; fine if nothing of it is swapped out."""
        swapped = self._swapped.pop(sequence, None)
        if swapped is None:
            return
        piece = swapped.piece
        piece.users -= 1
        if not piece.users:
            self._gaps.give_back([(piece.start, piece.length)])


def _lengths(holdings: Sequence[Holding]) -> dict[Slab, int]:
    """Computed positions of each slab that has any; of those who share one, some may have got further."""
    lengths: dict[Slab, int] = {}
    for _, slab, computed in holdings:
        if computed:
            lengths[slab] = max(computed, lengths.get(slab, 0))
    return lengths
