"""Evicts the blocks that were used least frequently, with counts that age."""

from __future__ import annotations

from turnout.core.interfaces.eviction import CachedBlock
from turnout.plugins.evictions.greedy_dual import GreedyDual

__all__ = ["Lfu"]


class Lfu(GreedyDual):
    """Evicts first the blocks that the fewest sequences attached to; of those, the one released longest ago.

    A block's hits are counted since it was computed. So that a block that was popular once does not stay for
    ever, new hits count on top of those of the block evicted last: LFU with dynamic aging (Arlitt et al.,
    "Evaluating content management techniques for web proxy caches", 2000).
    """

    def worth(self, block: CachedBlock) -> float:
        return block.hits
