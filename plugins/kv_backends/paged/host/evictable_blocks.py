"""Cached blocks that no sequence holds, and the choice of the one to evict."""

from __future__ import annotations

from collections import OrderedDict

from turnout.core.errors import PolicyError
from turnout.core.interfaces.eviction import CachedBlock, EvictionPolicy

__all__ = ["EvictableBlocks"]


class EvictableBlocks:
    """The eviction policy chooses among the blocks that are not pinned; pinned ones are evicted last."""

    def __init__(self, policy: EvictionPolicy) -> None:
        self._policy = policy
        self._given: set[int] = set()
        """Blocks that the policy chooses among."""
        self._pinned: OrderedDict[int, None] = OrderedDict()
        """Pinned blocks; the first is evicted next."""

    def __len__(self) -> int:
        return len(self._given) + len(self._pinned)

    def add(self, block: CachedBlock, *, pinned: bool) -> None:
        if pinned:
            self._pinned[block.block] = None
            return
        self._given.add(block.block)
        try:
            self._policy.add(block)
        except Exception as error:
            raise self._fault(f"failed to add {block}", error) from error

    def remove(self, block: int) -> None:
        if block in self._pinned:
            del self._pinned[block]
            return
        self._given.remove(block)
        try:
            self._policy.remove(block)
        except Exception as error:
            raise self._fault(f"failed to remove block {block}", error) from error

    def pop(self) -> int:
        """Removes and returns the block to evict; there must be one.

        Raises PolicyError if the policy returns no block that it was given.
        """
        if self._given:
            return self._pop_by_policy()
        return self._pinned.popitem(last=False)[0]

    def _pop_by_policy(self) -> int:
        try:
            block = self._policy.pop()
        except Exception as error:
            raise self._fault(f"failed to choose one of {len(self._given)} blocks", error) from error
        if type(block) is not int or block not in self._given:
            raise self._fault(
                f"chose {block!r}; expected one of the {len(self._given)} blocks that it was given by "
                "add() and that were not taken back by remove()"
            )
        self._given.remove(block)
        return block

    def _fault(self, what: str, error: Exception | None = None) -> PolicyError:
        cause = f": {type(error).__name__}: {error}" if error else ""
        return PolicyError(f"eviction policy {type(self._policy).__name__} {what}{cause}")
