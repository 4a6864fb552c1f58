"""Tells which prefixes a pool keeps, mark by mark, for routers."""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Collection, Iterator, Sequence
from typing import NamedTuple

from turnout.core.types.block_events import AllBlocksCleared, BlockEvent, BlockRemoved, BlockStored, marks

__all__ = ["Announcements"]


class _Stretch(NamedTuple):
    """What was told of a mark; kept to tell it another listener."""

    parent: bytes | None
    tokens: array[int]
    salt: str


class Announcements:
    """Notes the hashes of blocks that end at a mark, when they are registered and when they are forgotten."""

    def __init__(self, block_size: int, kept: Collection[bytes]) -> None:
        """`kept`: the hashes of the blocks that are found now, as the pool changes them."""
        self._block_size = block_size
        self._kept = kept
        self._marks = marks(block_size)
        self._indices = [-1]
        """The blocks that end at marks, in order, after one that stands for the begin of a prompt."""
        self._told: dict[bytes, _Stretch] = {}
        self._events: list[BlockEvent] = []

    def begin_anew(self) -> None:
        """Note for another listener, which knows of nothing, all that is kept."""
        told, self._told = self._told, {}
        self._events = [AllBlocksCleared()]
        for block_hash in told:
            for each in reversed(list(_untold(block_hash, told, self._told))):
                self._tell(each, told[each])

    def registered(self, hashes: Sequence[bytes], first: int, tokens: Sequence[int], salt: str) -> None:
        """Note the blocks of a sequence from `first` on, which have these hashes.

        Those before, too, if no listener was told of them when they were registered.
        """
        while self._indices[-1] < len(hashes) - 1:
            self._indices.append(next(self._marks) // self._block_size - 1)
        begin, end = bisect_left(self._indices, first), bisect_left(self._indices, len(hashes))
        while begin > 1 and self._is_news(hashes[self._indices[begin - 1]]):
            begin -= 1
        for at in range(begin, end):
            before, index = self._indices[at - 1 : at + 1]
            if self._is_news(hashes[index]):  # a window may have let go of the block
                parent = hashes[before] if before >= 0 else None
                stretch = tokens[(before + 1) * self._block_size : (index + 1) * self._block_size]
                self._tell(hashes[index], _Stretch(parent, array("q", stretch), salt))

    def forgotten(self, block_hash: bytes) -> None:
        """Note that a block is found no more."""
        if self._told.pop(block_hash, None) is not None:
            self._events.append(BlockRemoved([block_hash]))

    def drain(self) -> list[BlockEvent]:
        """Return what was noted since the last call."""
        events, self._events = self._events, []
        return events

    def _is_news(self, block_hash: bytes) -> bool:
        return block_hash not in self._told and block_hash in self._kept

    def _tell(self, block_hash: bytes, stretch: _Stretch) -> None:
        self._told[block_hash] = stretch
        parent, tokens, salt = stretch
        self._events.append(BlockStored(block_hash, parent, tokens.tolist(), self._block_size, salt))


def _untold(block_hash: bytes, told: dict[bytes, _Stretch], again: Collection[bytes]) -> Iterator[bytes]:
    """The marks up to one, backwards, that have not been told again: none, where one before is gone."""
    path = list[bytes]()
    at: bytes | None = block_hash
    while at is not None and at not in again:
        if at not in told:
            return
        path.append(at)
        at = told[at].parent
    yield from path
