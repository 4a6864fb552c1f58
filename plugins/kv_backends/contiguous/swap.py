"""Swap memory of the contiguous backend: the computed positions of preempted sequences, in host memory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from turnout.core.types.plan import Move
from turnout.plugins.kv_backends.contiguous.first_fit import FirstFit
from turnout.plugins.kv_backends.contiguous.slabs import Slab

__all__ = ["SlabHolding", "SwapSlabs", "SwappedSlab"]

SlabHolding = tuple[int, Slab, int]
"""A sequence's id, its slab, and the number of its computed positions."""


@dataclass(eq=False, slots=True)
class _HostRange:
    """Positions in host memory: the computed ones of a slab."""

    start: int
    length: int
    users: int = 0
    """Sequences that shared the slab; each brings back a copy of its own."""


class SwappedSlab(NamedTuple):
    """The host memory of a sequence, with its first `length` positions."""

    range: _HostRange
    length: int

    @property
    def start(self) -> int:
        return self.range.start


class SwapSlabs:
    """Keeps account of host memory, in ranges of exactly the computed length, allocated first fit."""

    def __init__(self, size: int) -> None:
        self._ranges = FirstFit(size)
        self._size = size
        self._swapped: dict[int, SwappedSlab] = {}

    @property
    def used(self) -> int:
        return self._size - self._ranges.free

    def of(self, sequence: int) -> SwappedSlab | None:
        return self._swapped.get(sequence)

    def cost(self, holdings: Sequence[SlabHolding]) -> int:
        """Positions that `swap_out` would copy; 0: it would do nothing."""
        lengths = list(_lengths(holdings).values())
        return sum(lengths) if self._ranges.fits(lengths) else 0

    def swap_out(self, holdings: Sequence[SlabHolding]) -> list[Move] | None:
        """Takes host memory for all that is computed, and returns the moves to fill it.

        None if there is no room; nothing has changed then.
        """
        lengths = _lengths(holdings)
        starts = self._ranges.take(list(lengths.values()))
        if starts is None:
            return None
        ranges = {
            slab: _HostRange(start, length)
            for (slab, length), start in zip(lengths.items(), starts, strict=True)
        }
        for sequence, slab, computed in holdings:
            if computed:
                ranges[slab].users += 1
                self._swapped[sequence] = SwappedSlab(ranges[slab], computed)
        return [Move(slab.start, host.start, host.length, "swap_out") for slab, host in ranges.items()]

    def forget(self, sequence: int) -> None:
        """Gives up the host memory of a sequence, if it has any."""
        swapped = self._swapped.pop(sequence, None)
        if swapped is None:
            return
        host = swapped.range
        host.users -= 1
        if not host.users:
            self._ranges.give_back([(host.start, host.length)])


def _lengths(holdings: Sequence[SlabHolding]) -> dict[Slab, int]:
    """Computed positions of each slab that has any: the most that any of its sequences has."""
    lengths: dict[Slab, int] = {}
    for _, slab, computed in holdings:
        if computed:
            lengths[slab] = max(computed, lengths.get(slab, 0))
    return lengths
