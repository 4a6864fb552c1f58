"""What rank 0 sends to its followers for each step: one frame, in which nothing is left to decide.

::

    transitions of KV memory since the frame before, in order, and the blocks that were evicted for them
    ──▶ a check of the moves that they ask for; now and then of the whole books
    ──▶ chunks: which sequence, from where, which tokens, how many rows of logits
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum
from zlib import crc32

import msgspec

from turnout.core.errors import TurnoutError
from turnout.core.interfaces.kv import KVCache, KVDigest, KVDigests
from turnout.core.types.plan import Move

__all__ = [
    "DIGEST_EVERY",
    "Divergence",
    "Entered",
    "Frame",
    "Ops",
    "Pin",
    "Transition",
    "digest_of",
    "digest_of_moves",
]

DIGEST_EVERY = 64
"""Frames from one check of the books to the next."""


class Divergence(TurnoutError):
    """A follower's KV memory is not what rank 0's is: its next tokens would be wrong."""


class Transition(IntEnum):
    """What happened, followed by its numbers in `Frame.ops`."""

    ENTER = 0
    """The index in `Frame.entered`: a sequence whose first memory comes next."""
    RESERVE = 1
    """How many spans, then for each its sequence, its start, its end, and what was computed."""
    COMMIT = 2
    """The sequence, and up to where."""
    FORK = 3
    """The parent, the child, and the number of the child's choice."""
    RELEASE = 4
    """Whether it is swapped out, how many sequences, then for each its id and what was computed."""
    PIN = 5
    """The index in `Frame.pins`."""
    UNPIN = 6
    """The same."""


Ops = list[int]


class Entered(msgspec.Struct, array_like=True, gc=False, frozen=True):
    """A sequence without memory, with all that a cache may read of it and of its request."""

    sequence: int
    """Its id on rank 0, which is its id on followers too."""
    index: int
    tokens: list[int]
    """All that it has now."""
    request: int
    """The request's number; sequences of one request have the same."""
    prompt: int
    """How many of the tokens are its prompt."""
    salt: str
    limit: int
    width: int
    scheduled: bool
    """Whether it was admitted before."""
    unscored: tuple[int, int]
    """The range `Request.unscored`."""


class Pin(msgspec.Struct, array_like=True, gc=False, frozen=True):
    """A prefix that is pinned, or unpinned."""

    name: str
    tokens: Sequence[int] = ()
    salt: str = ""


class Frame(msgspec.Struct, array_like=True, gc=False, frozen=True):
    """A step of rank 0, for its followers. Columns are in the order of chunks."""

    number: int
    """Frames are numbered from 1; a lost one is found by that."""
    ops: Ops
    """The transitions, as `Transition` says."""
    entered: list[Entered]
    pins: list[Pin]
    victims: list[int]
    """The blocks that the eviction policy chose, in order."""
    moves: int
    """A digest of the plan's moves."""
    digest: KVDigest | None
    """Of the books behind the transitions; None: not in this frame."""
    sequences: list[int]
    """The sequence of each chunk."""
    starts: list[int]
    rows: list[int]
    tokens: list[list[int]]
    scored: list[tuple[int, int, int]]
    """Chunks with scored positions: the index of a chunk, the first position, and the end."""
    pooled: list[tuple[int, int, int]]
    """The same of pooled positions."""


def digest_of_moves(moves: Sequence[Move]) -> int:
    """Returns the same number for the same moves."""
    return crc32(repr(moves).encode()) if moves else 0


def digest_of(cache: KVCache) -> KVDigest:
    """Returns what ranks compare of their books: all that the cache tells of, at least what is free."""
    told = cache.digests() if isinstance(cache, KVDigests) else KVDigest({}, {})
    return KVDigest({**told.parts, "free positions": cache.free}, told.sequences)
