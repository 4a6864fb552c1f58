"""Evicts the blocks that were used least recently."""

from __future__ import annotations

from array import array
from itertools import repeat

from turnout.core.interfaces.eviction import CachedBlock, EvictionPolicy

__all__ = ["Lru"]

SLACK = 1024
"""Entries that may be left over in the order of release before it is looked through."""


class Lru(EvictionPolicy):
    """Evicts first the block that was released longest ago."""

    # Eight bytes a block, where an `OrderedDict` takes over a hundred: a simulation has a thousand pools.

    def __init__(self) -> None:
        self._order = array("i")
        """Blocks as they were released, with entries left over of those that are not here any more."""
        self._first = 0
        """The entries before this one are left over."""
        self._places = array("i")
        """By block, the place of its entry in the order; -1 for a block that is not here."""
        self._most = SLACK
        """How long the order is when what is left over is dropped."""

    def add(self, block: CachedBlock) -> None:
        if len(self._order) >= self._most:
            self._drop_left_over()
        number, order = block.block, self._order
        try:
            self._places[number] = len(order)
        except IndexError:
            self._places.extend(repeat(-1, number + 1))
            self._places[number] = len(order)
        order.append(number)

    def remove(self, block: int) -> None:
        self._places[block] = -1

    def pop(self) -> int:
        order, places, at = self._order, self._places, self._first
        while places[block := order[at]] != at:
            at += 1
        places[block] = -1
        self._first = at + 1
        return block

    def _drop_left_over(self) -> None:
        """Takes time by entry, after as many calls of `add` as there are blocks, or more."""
        places, old = self._places, self._order
        order = self._order = array("i", [block for at, block in enumerate(old) if places[block] == at])
        for at, block in enumerate(order):
            places[block] = at
        self._first, self._most = 0, SLACK + 2 * len(order)
