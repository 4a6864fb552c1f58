"""Blocks that nobody holds and somebody may want again, and which of them is given up next."""

from __future__ import annotations

from turnout.core.errors import PolicyError
from turnout.core.eviction import CachedBlock, EvictionPolicy

__all__ = ["CachedBlocks"]


class CachedBlocks:
    """The eviction policy chooses among all but the pinned ones, which go when nothing else is left."""

    def __init__(self, policy: EvictionPolicy) -> None:
        self._policy = policy
        self._given: set[int] = set()
        """Those that the policy was told of."""
        self._pinned: dict[int, None] = {}
        """Those that it was not; the next to go first."""

    def __len__(self) -> int:
        return len(self._given) + len(self._pinned)

    def add(self, block: CachedBlock, *, pinned: bool) -> None:
        if pinned:
            self._pinned[block.block] = None
        else:
            self._given.add(block.block)
            self._policy.add(block)

    def remove(self, block: int) -> None:
        if block in self._given:
            self._given.remove(block)
            self._policy.remove(block)
        else:
            del self._pinned[block]

    def pop(self) -> int:
        """Give one up; there must be one. Raises PolicyError when the policy names none that it was given."""
        if self._given:
            return self._ask()
        block = next(iter(self._pinned))
        del self._pinned[block]
        return block

    def _ask(self) -> int:
        name = type(self._policy).__name__
        try:
            block = self._policy.pop()
        except Exception as error:
            raise PolicyError(
                f"eviction policy {name} failed to give up one of {len(self._given)} blocks: "
                f"{type(error).__name__}: {error}"
            ) from error
        if block not in self._given:
            raise PolicyError(
                f"eviction policy {name} gave up {block!r}; expected one of the {len(self._given)} blocks "
                "that it was given by add() and that were not taken back by remove()"
            )
        self._given.remove(block)
        return block
