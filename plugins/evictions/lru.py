"""Evicts the blocks that were used least recently."""

from __future__ import annotations

from collections import OrderedDict

from turnout.core.interfaces.eviction import CachedBlock, EvictionPolicy

__all__ = ["Lru"]


class Lru(EvictionPolicy):
    """Evicts first the block that was released longest ago."""

    def __init__(self) -> None:
        # Not a dict: to find its first entry, a dict passes all entries deleted before it.
        self._blocks: OrderedDict[int, None] = OrderedDict()

    def add(self, block: CachedBlock) -> None:
        self._blocks[block.block] = None

    def remove(self, block: int) -> None:
        del self._blocks[block]

    def pop(self) -> int:
        return self._blocks.popitem(last=False)[0]
