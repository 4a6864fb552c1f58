"""What policies share that weigh how much a block is worth against how long ago it was used."""

from __future__ import annotations

from abc import abstractmethod
from heapq import heapify, heappop, heappush

from turnout.core.interfaces.eviction import CachedBlock, EvictionPolicy

__all__ = ["GreedyDual"]


class GreedyDual(EvictionPolicy):
    """Gives up the block of least priority: what it is worth, plus the age of the pool when it came.

    The age is the priority of the block given up last, so it only grows: what is worth a lot and not used
    again is overtaken in time. Among equals, whoever came first goes first. Young, "The k-server dual and
    loose competitiveness for paging", 1994; Cao and Irani, "Cost-aware WWW proxy caching algorithms", 1997.
    """

    def __init__(self) -> None:
        self._age = 0.0
        self._arrivals = 0
        # Priority, arrival, block. Those that were removed stay until they come up, or are too many.
        self._heap: list[tuple[float, int, int]] = []
        self._arrival_of: dict[int, int] = {}

    @abstractmethod
    def worth(self, block: CachedBlock) -> float:
        """In any unit; at least 0."""

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
