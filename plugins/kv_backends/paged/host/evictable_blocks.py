"""Cached blocks that no sequence holds, and the choice of the one to evict.

::

    evicted first     passed: windows have passed them, oldest first
                      those that the eviction policy orders
    evicted last      pinned, oldest first
"""

from __future__ import annotations

from collections import OrderedDict

from turnout.core.interfaces.eviction import CachedBlock, EvictionPolicy
from turnout.core.scheduling.guarded_eviction import GuardedEviction

__all__ = ["EvictableBlocks"]


class EvictableBlocks:
    """The eviction policy chooses among the blocks that are neither passed nor pinned."""

    def __init__(self, policy: EvictionPolicy) -> None:
        """policy: guarded, as an engine gives it; the faults of one that is not raise PolicyError."""
        if not isinstance(policy, GuardedEviction):
            policy = GuardedEviction(policy, strict=True)
        self._policy = policy
        self._passed: OrderedDict[int, None] = OrderedDict()
        self._pinned: OrderedDict[int, None] = OrderedDict()
        """Pinned blocks; the first is evicted next."""

    def __len__(self) -> int:
        return len(self._policy) + len(self._pinned) + len(self._passed)

    @property
    def passed(self) -> int:
        """How many are evicted before the policy is asked."""
        return len(self._passed)

    def add(self, block: CachedBlock, *, pinned: bool, passed: bool = False) -> None:
        if pinned:
            self._pinned[block.block] = None
        elif passed:
            self._passed[block.block] = None
        else:
            self._policy.add(block)

    def remove(self, block: int) -> None:
        if block in self._pinned:
            del self._pinned[block]
        elif block in self._passed:
            del self._passed[block]
        else:
            self._policy.remove(block)

    def pop(self) -> int:
        """Removes and returns the block to evict; there must be one."""
        if self._passed:
            return self._passed.popitem(last=False)[0]
        return self._policy.pop() if self._policy else self._pinned.popitem(last=False)[0]
