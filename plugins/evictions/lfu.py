"""Least frequently used, with fame that fades."""

from __future__ import annotations

from turnout.core.interfaces.eviction import CachedBlock
from turnout.plugins.evictions.greedy_dual import GreedyDual

__all__ = ["Lfu"]


class Lfu(GreedyDual):
    """Gives up first what fewest sequences attached to, and among those what was released longest ago.

    A block's hits are counted since it was computed. So that what was popular once does not stay for ever,
    hits made now count on top of those of the block given up last: LFU with dynamic aging (Arlitt et al.,
    "Evaluating content management techniques for web proxy caches", 2000).
    """

    def worth(self, block: CachedBlock) -> float:
        return block.hits
