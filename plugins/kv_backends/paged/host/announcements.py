"""Tells which prefixes a pool keeps, mark by mark, for routers."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence

from turnout.core.types.block_events import BlockEvent, BlockRemoved, BlockStored, marks

__all__ = ["Announcements"]


class Announcements:
    """Notes the hashes of blocks that end at a mark, when they are registered and when they are forgotten."""

    def __init__(self, block_size: int) -> None:
        self._block_size = block_size
        self._marks = marks(block_size)
        self._indices = [-1]
        """The blocks that end at marks, in order, after one that stands for the begin of a prompt."""
        self._told: set[bytes] = set()
        self._events: list[BlockEvent] = []

    def registered(self, hashes: Sequence[bytes], first: int, tokens: Sequence[int], salt: str) -> None:
        """Note the blocks of a sequence from `first` on, which have these hashes."""
        while self._indices[-1] < len(hashes) - 1:
            self._indices.append(next(self._marks) // self._block_size - 1)
        for at in range(bisect_left(self._indices, first), bisect_left(self._indices, len(hashes))):
            before, index = self._indices[at - 1 : at + 1]
            if hashes[index] not in self._told:
                self._told.add(hashes[index])
                parent = hashes[before] if before >= 0 else None
                stretch = tokens[(before + 1) * self._block_size : (index + 1) * self._block_size]
                self._events.append(BlockStored(hashes[index], parent, list(stretch), self._block_size, salt))

    def forgotten(self, block_hash: bytes) -> None:
        """Note that a block is found no more."""
        if block_hash in self._told:
            self._told.remove(block_hash)
            self._events.append(BlockRemoved([block_hash]))

    def drain(self) -> list[BlockEvent]:
        """Return what was noted since the last call."""
        events, self._events = self._events, []
        return events
