"""The eviction interface: which cached memory is evicted first, of that which no sequence holds."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import NamedTuple

from turnout.core.interfaces.figures import Figures

__all__ = ["CachedBlock", "EvictionPolicy"]


class CachedBlock(NamedTuple):
    """A block of computed KV memory that no sequence holds, and that one may attach to again."""

    block: int
    """The number of the block."""
    hits: int
    """How often a sequence attached to the block since it was computed."""
    reach: int
    """Tokens of the longest prefix that the block was part of when it was released."""
    group: int = 0
    """The KV group of its layers; a prefix is found where each group has the blocks that its windows see."""


class EvictionPolicy(ABC):
    """Orders the cached blocks: blocks are added and removed, and popped when memory is needed.

    There is no clock: calls come in the order of events. All methods are called per block and must be fast.
    """

    @abstractmethod
    def add(self, block: CachedBlock) -> None:
        """Called when the last sequence that held a block has released it.

        A prefix is released from its end to its start. It is of no use without its start, so among equal
        blocks evict the one that was added first.
        """

    @abstractmethod
    def remove(self, block: int) -> None:
        """Called when an added block is held again or pinned: it must not be evicted."""

    @abstractmethod
    def pop(self) -> int:
        """Returns the block to evict, and forgets it. Called only while there is a block.

        Another block than those added and not removed is an error.
        """

    def figures(self) -> Figures:
        """Returns counters and gauges for `GET /metrics`, asked for a few times a second. None by default."""
        return Figures()
