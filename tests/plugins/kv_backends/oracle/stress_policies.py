"""Policies of no use but to make trouble: they answer anything the contract allows."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence

from turnout.core.interfaces.eviction import CachedBlock, EvictionPolicy
from turnout.core.interfaces.kv import KVCache
from turnout.core.interfaces.scheduling import Drop, Entry, SchedulingPolicy, Share
from turnout.core.types.request import RequestView
from turnout.core.types.request import Sequence as TokenSequence
from turnout.core.types.views import View

__all__ = ["AnyEviction", "AnyOrder", "AnyPreemption"]


class AnyOrder(SchedulingPolicy):
    """Serves, caps, leaves out, evicts and gives up requests at random. Not for ever: they must finish."""

    def __init__(self, seed: int, *, drops: bool) -> None:
        self._rng = random.Random(seed)
        self._drops = drops
        self._whims = 60
        self.head_of_line = self._rng.random() < 0.5  # type: ignore[misc]  # a class attribute elsewhere

    def order(self, view: View) -> Iterator[Entry]:
        requests = [*view.running, *view.waiting]
        self._rng.shuffle(requests)
        for request in requests:
            whim = self._rng.random()
            if whim < 0.1:
                continue
            if whim < 0.11 and self._drops:
                yield Drop(request, "on a whim")
            elif whim < 0.4:
                yield Share(request, self._rng.randrange(1, 8))
            else:
                yield request

    def victim(self, request: RequestView, running: tuple[RequestView, ...]) -> RequestView | None:
        if self._whims > 0 and self._rng.random() < 0.5:
            self._whims -= 1
            return self._rng.choice(running)
        return super().victim(request, running)


class AnyPreemption:
    """Swaps out or not, by the toss of a coin."""

    def __init__(self, seed: int) -> None:
        self._rng = random.Random(seed)

    def swaps_out(self, sequences: Sequence[TokenSequence], kv: KVCache) -> bool:
        return self._rng.random() < 0.6


class AnyEviction(EvictionPolicy):
    """Gives up any block. Insists on being told of each that comes and goes, once."""

    def __init__(self, seed: int) -> None:
        self._rng = random.Random(seed)
        self.blocks: list[int] = []

    def add(self, block: CachedBlock) -> None:
        assert block.block not in self.blocks, f"block {block.block} came twice"
        self.blocks.append(block.block)

    def remove(self, block: int) -> None:
        self.blocks.remove(block)

    def pop(self) -> int:
        return self.blocks.pop(self._rng.randrange(len(self.blocks)))
