"""The eviction interface: which cached memory is evicted first, of that which no sequence holds."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import NamedTuple

__all__ = ["CachedBlock", "EvictionPolicy"]


class CachedBlock(NamedTuple):
    """A block of computed KV memory that no sequence holds, and that one may attach to again."""

    block: int
    """The number of the block."""
    hits: int
    """How often a sequence attached to the block since it was computed."""
    reach: int
    """Tokens of the longest prefix that the block was part of when it was released."""


class EvictionPolicy(ABC):
    """Orders the cached blocks: blocks are added and removed, and popped when memory is needed.

    There is no clock: calls come in the order of events. All methods are called per block and must be fast.
    """

    @abstractmethod
    def add(self, block: CachedBlock) -> None:
        """Called when the last sequence that held a block has released it.

        The last block of a prefix is added first. A prefix is of no use without its start, so among equals
        the block that was added first should be evicted first.
        """

    @abstractmethod
    def remove(self, block: int) -> None:
        """Called when an added block is held again, or was evicted for another reason."""

    @abstractmethod
    def pop(self) -> int:
        """Returns the block to evict, and removes it. Called only while there is a block."""
