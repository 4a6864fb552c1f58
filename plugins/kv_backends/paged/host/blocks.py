"""The blocks of a pool: how many sequences hold each, its hash, and which is reused next.

::

                 take                  release, if it has a hash
    free  ─────────────────▶   held   ─────────────────────────▶  cached
     ▲                        │  ▲  ▲        attach, hold          │  │
     └────────────────────────┘  │  └──────────────────────────────┘  │
      release, if it has no hash └────────────────────────────────────┘
                                   take, when no block is free: evicted, its hash forgotten
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from turnout.core.interfaces.eviction import CachedBlock, EvictionPolicy
from turnout.plugins.kv_backends.paged.host.evictable_blocks import EvictableBlocks

__all__ = ["CACHED", "FREE", "HELD", "SHARED", "BlockPool"]

FREE, CACHED, HELD, SHARED = b"fchs"


class BlockPool:
    """Blocks, numbered from 0. A hash is registered for one block, a block has one hash or none."""

    def __init__(self, count: int, eviction: EvictionPolicy) -> None:
        self.holders = [0] * count
        self.states = bytearray([FREE]) * count
        """FREE, CACHED, HELD (by one sequence) or SHARED (by several) for each block."""
        self.block_of: dict[bytes, int] = {}
        """The block that is registered for a hash."""
        self.groups = bytearray(count)
        """The group of layers that each block was taken for last."""
        self.evictions = 0
        self.hashes: list[bytes | None] = [None] * count
        """The registered hash of each block."""
        self._hits = [0] * count
        self._reach = [0] * count
        self._ends = bytearray(count)
        """Whether a sequence has ended behind each block."""
        self._free = list(reversed(range(count)))
        self._evictable = EvictableBlocks(eviction)
        self.available = count
        """Blocks that can be taken: free and evictable ones."""
        self._pinned: set[bytes] = set()
        self.on_forgotten: Callable[[bytes], None] | None = None
        """Told of a hash that is registered no more."""

    @property
    def passed(self) -> int:
        """Cached blocks that windows have passed: available, and evicted before the policy is asked."""
        return self._evictable.passed

    def take(self, group: int = 0) -> int:
        """Holds an available block for new contents, of layers of a group; there must be one."""
        block = self._free.pop() if self._free else self._evict()
        self.available -= 1
        self.holders[block] = 1
        self.states[block] = HELD
        self.groups[block] = group
        return block

    def hold(self, block: int) -> None:
        """Adds a holder of the block's contents."""
        holders = self.holders[block]
        if not holders:
            self._evictable.remove(block)
            self.available -= 1
        self.holders[block] = holders + 1
        self.states[block] = SHARED if holders else HELD

    def attach(self, block: int) -> None:
        """Holds a block that was found as part of a prefix."""
        self._hits[block] += 1
        self.hold(block)

    def release(self, block: int, reach: int = 0, *, passed: bool = False) -> None:
        """Removes a holder. reach: the tokens of the holder's registered prefix; passed: its window has
        passed the block, which is evicted early.
        """
        holders = self.holders[block] - 1
        self.holders[block] = holders
        if reach > self._reach[block]:
            self._reach[block] = reach
        if not holders:
            self.available += 1
            self._put(block, passed=passed)
        elif holders == 1:
            self.states[block] = HELD

    def register(self, block: int, block_hash: bytes) -> None:
        """Lets a block be found by its hash; a second block with the same hash stays private."""
        if block_hash not in self.block_of and self.hashes[block] is None:
            self.block_of[block_hash], self.hashes[block] = block, block_hash
            self._hits[block] = self._reach[block] = self._ends[block] = 0

    def end(self, block: int) -> None:
        """Notes that a sequence ends behind a block, or is preempted there."""
        self._ends[block] = 1

    def goes_on(self, block: int) -> bool:
        """Whether a block that is attached ended a sequence, and only one has gone on from there.

        As the next turn of a conversation does, after which hardly another does.
        """
        return bool(self._ends[block]) and self._hits[block] == 1

    def refresh(self, block: int, block_hash: bytes) -> None:
        """Has a block evicted as if it were released now, if it is cached and still has that hash."""
        if self.hashes[block] == block_hash and not self.holders[block]:
            self._evictable.remove(block)
            self._put(block)

    def unregister(self, block: int) -> None:
        """Forgets the hash of a block that is about to be written to, if it has one."""
        block_hash = self.hashes[block]
        if block_hash is not None:
            del self.block_of[block_hash]
            self.hashes[block] = None
            self.evictions += 1
            if self.on_forgotten is not None:
                self.on_forgotten(block_hash)

    # -------------------------------------------------------------- pins

    def pin(self, hashes: Iterable[bytes]) -> None:
        """Has the blocks with these hashes, now or later, evicted last; those of the first hashes first."""
        for block_hash in hashes:
            if block_hash not in self._pinned:
                self._pinned.add(block_hash)
                self._update_evictable(block_hash)

    def unpin(self, hashes: Iterable[bytes]) -> None:
        for block_hash in hashes:
            if block_hash in self._pinned:
                self._pinned.remove(block_hash)
                self._update_evictable(block_hash)

    def _update_evictable(self, block_hash: bytes) -> None:
        block = self.block_of.get(block_hash)
        if block is not None and not self.holders[block]:
            self._evictable.remove(block)
            self._put(block)

    # -------------------------------------------------------------- details

    def _put(self, block: int, *, passed: bool = False) -> None:
        """Puts a block that has no holder where `take` finds it."""
        block_hash = self.hashes[block]
        if block_hash is None:
            self.states[block] = FREE
            self._free.append(block)
            return
        self.states[block] = CACHED
        described = CachedBlock(block, self._hits[block], self._reach[block], self.groups[block])
        self._evictable.add(described, pinned=block_hash in self._pinned, passed=passed)

    def _evict(self) -> int:
        block = self._evictable.pop()
        self.unregister(block)
        return block
