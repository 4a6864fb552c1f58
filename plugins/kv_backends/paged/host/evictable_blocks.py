"""Blocks that nobody holds and somebody may want again, and which of them is given up next."""

from __future__ import annotations

from collections import OrderedDict

from turnout.core.errors import PolicyError
from turnout.core.interfaces.eviction import CachedBlock, EvictionPolicy

__all__ = ["CachedBlocks"]


class CachedBlocks:
    """The eviction policy chooses among all but the pinned ones, which go when nothing else is left."""

    def __init__(self, policy: EvictionPolicy) -> None:
        self._policy = policy
        self._given: set[int] = set()
        """Those that the policy was told of."""
        self._pinned: OrderedDict[int, None] = OrderedDict()
        """Those that it was not; the next to go first."""

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
            raise self._fault(f"failed to take {block}", error) from error

    def remove(self, block: int) -> None:
        if block in self._pinned:
            del self._pinned[block]
            return
        self._given.remove(block)
        try:
            self._policy.remove(block)
        except Exception as error:
            raise self._fault(f"failed to part with block {block}", error) from error

    def pop(self) -> int:
        """Give one up; there must be one. Raises PolicyError when the policy names none that it was given."""
        if self._given:
            return self._ask()
        return self._pinned.popitem(last=False)[0]

    def _ask(self) -> int:
        try:
            block = self._policy.pop()
        except Exception as error:
            raise self._fault(f"failed to give up one of {len(self._given)} blocks", error) from error
        if type(block) is not int or block not in self._given:
            raise self._fault(
                f"gave up {block!r}; expected one of the {len(self._given)} blocks that it was given by "
                "add() and that were not taken back by remove()"
            )
        self._given.remove(block)
        return block

    def _fault(self, what: str, error: Exception | None = None) -> PolicyError:
        cause = f": {type(error).__name__}: {error}" if error else ""
        return PolicyError(f"eviction policy {type(self._policy).__name__} {what}{cause}")
