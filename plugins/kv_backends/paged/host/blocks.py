"""The pool's blocks: how many hold each, which key it is known by, and what is reused first.

::

                 take                    drop, if it has a key
    free  ─────────────────▶   held   ─────────────────────────▶  cached
     ▲                        │  ▲  ▲        attach, hold          │  │
     └────────────────────────┘  │  └──────────────────────────────┘  │
       drop, if it has no key    └────────────────────────────────────┘
                                   take, when nothing is free: evicted, its key forgotten
"""

from __future__ import annotations

from collections.abc import Iterable

from turnout.core.interfaces.eviction import CachedBlock, EvictionPolicy
from turnout.plugins.kv_backends.paged.host.evictable_blocks import CachedBlocks

__all__ = ["CACHED", "FREE", "HELD", "SHARED", "Blocks"]

FREE, CACHED, HELD, SHARED = b"fchs"


class Blocks:
    """Numbered from 0. A key stands for one block, a block has one key or none."""

    def __init__(self, count: int, eviction: EvictionPolicy) -> None:
        self.holders = [0] * count
        self.states = bytearray([FREE]) * count
        """One of FREE, CACHED, HELD (by one) and SHARED (by more) for each block."""
        self.block_of: dict[bytes, int] = {}
        self.evictions = 0
        self.keys: list[bytes | None] = [None] * count
        """The one that each block is known by."""
        self._hits = [0] * count
        self._reach = [0] * count
        self._free = list(reversed(range(count)))
        self._cached = CachedBlocks(eviction)
        self._pinned: set[bytes] = set()

    @property
    def idle(self) -> int:
        """Blocks that could be taken."""
        return len(self._free) + len(self._cached)

    def take(self) -> int:
        """Hold an idle block for new contents; there must be one."""
        block = self._free.pop() if self._free else self._evict()
        self.holders[block] = 1
        self.states[block] = HELD
        return block

    def hold(self, block: int) -> None:
        """One more holder of what is in it."""
        holders = self.holders[block]
        if not holders:
            self._cached.remove(block)
        self.holders[block] = holders + 1
        self.states[block] = SHARED if holders else HELD

    def attach(self, block: int) -> None:
        """Hold it, as part of a prefix that was found in memory."""
        self._hits[block] += 1
        self.hold(block)

    def drop(self, block: int, reach: int = 0) -> None:
        """One holder less, whose prefix of known blocks was `reach` tokens long."""
        holders = self.holders[block] - 1
        self.holders[block] = holders
        if reach > self._reach[block]:
            self._reach[block] = reach
        if not holders:
            self._rest(block)
        elif holders == 1:
            self.states[block] = HELD

    def share(self, block: int, key: bytes) -> None:
        """Let it be found under `key`. The first block with these tokens is the one; a twin stays private."""
        if key not in self.block_of and self.keys[block] is None:
            self.block_of[key], self.keys[block] = block, key
            self._hits[block] = self._reach[block] = 0

    def forget(self, block: int) -> None:
        """It is about to be written to: nobody finds it any more. Fine if it has no key."""
        key = self.keys[block]
        if key is not None:
            del self.block_of[key]
            self.keys[block] = None
            self.evictions += 1

    # -------------------------------------------------------------- pins

    def pin(self, keys: Iterable[bytes]) -> None:
        """Give up the blocks of `keys` last, those there are and those to come; the first of `keys` first."""
        for key in keys:
            if key not in self._pinned:
                self._pinned.add(key)
                self._file_again(key)

    def unpin(self, keys: Iterable[bytes]) -> None:
        for key in keys:
            if key in self._pinned:
                self._pinned.remove(key)
                self._file_again(key)

    def _file_again(self, key: bytes) -> None:
        block = self.block_of.get(key)
        if block is not None and not self.holders[block]:
            self._cached.remove(block)
            self._rest(block)

    # -------------------------------------------------------------- details

    def _rest(self, block: int) -> None:
        key = self.keys[block]
        if key is None:
            self.states[block] = FREE
            self._free.append(block)
            return
        self.states[block] = CACHED
        described = CachedBlock(block, self._hits[block], self._reach[block])
        self._cached.add(described, pinned=key in self._pinned)

    def _evict(self) -> int:
        block = self._cached.pop()
        self.forget(block)
        return block
