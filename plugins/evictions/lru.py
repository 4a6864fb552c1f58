"""Least recently used."""

from __future__ import annotations

from turnout.core.eviction import CachedBlock, EvictionPolicy

__all__ = ["Lru"]


class Lru(EvictionPolicy):
    """Gives up first what was released longest ago."""

    def __init__(self) -> None:
        self._blocks: dict[int, None] = {}

    def add(self, block: CachedBlock) -> None:
        self._blocks[block.block] = None

    def remove(self, block: int) -> None:
        del self._blocks[block]

    def pop(self) -> int:
        block = next(iter(self._blocks))
        del self._blocks[block]
        return block
