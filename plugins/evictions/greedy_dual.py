"""The base of policies that weigh how much a block is worth against how long ago it was used."""

from __future__ import annotations

from abc import abstractmethod
from heapq import heapify, heappop, heappush

from turnout.core.interfaces.eviction import CachedBlock, EvictionPolicy

__all__ = ["GreedyDual"]


class GreedyDual(EvictionPolicy):
    """Evicts the block of least priority: its worth, plus the age of the pool when the block was added.

    The age is the priority of the block evicted last, so it only grows: a block that is worth a lot and is
    not used again is overtaken in time. Among equals, the block added first is evicted first. Young, "The
    k-server dual and loose competitiveness for paging", 1994; Cao and Irani, "Cost-aware WWW proxy caching
    algorithms", 1997.
    """

    def __init__(self) -> None:
        self._age = 0.0
        self._arrivals = 0
        # Priority, arrival, block. Removed entries stay until they are popped, or until there are too many.
        self._heap: list[tuple[float, int, int]] = []
        self._arrival_of: dict[int, int] = {}

    @abstractmethod
    def worth(self, block: CachedBlock) -> float:
        """What a block is worth, in any unit, at least 0."""

    def add(self, block: CachedBlock) -> None:
        self._arrivals += 1
        self._arrival_of[block.block] = self._arrivals
        heappush(self._heap, (self._age + self.worth(block), self._arrivals, block.block))

    def remove(self, block: int) -> None:
        del self._arrival_of[block]
        if len(self._heap) > 2 * len(self._arrival_of) + 64:
            self._heap = [entry for entry in self._heap if self._is_here(entry)]
            heapify(self._heap)

    def pop(self) -> int:
        while True:
            entry = heappop(self._heap)
            if self._is_here(entry):
                self._age, _, block = entry
                del self._arrival_of[block]
                return block

    def _is_here(self, entry: tuple[float, int, int]) -> bool:
        _, arrival, block = entry
        return self._arrival_of.get(block) == arrival
