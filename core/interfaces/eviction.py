"""The eviction seam: which cached memory that nobody holds is given up first."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import NamedTuple

__all__ = ["CachedBlock", "EvictionPolicy"]


class CachedBlock(NamedTuple):
    """A block of computed KV memory that nobody holds and somebody may want again."""

    block: int
    """Its number."""
    hits: int
    """How often a sequence attached to it since it was computed."""
    reach: int
    """Tokens of the longest prefix that it was released as part of."""


class EvictionPolicy(ABC):
    """Orders the cached blocks. Told of each that comes and goes; asked when memory is needed.

    No clock: what happened later was called later. All three are called per block, often: must be fast.
    """

    @abstractmethod
    def add(self, block: CachedBlock) -> None:
        """Its last holder released it. Of a prefix, the last block comes first: a prefix without its
        start is of no use, so among equals whoever came first should go first."""

    @abstractmethod
    def remove(self, block: int) -> None:
        """It is held again, or given up for another reason; it was added before."""

    @abstractmethod
    def pop(self) -> int:
        """Give one up. Called only while there is one."""
