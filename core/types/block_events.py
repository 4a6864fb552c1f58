"""What an engine tells of the prefixes in its KV memory, so that routers know where a prompt is cached.

Fields have the names that vLLM's KV events have. A block of an event is the stretch of a prompt between two
marks, the positions that `marks` gives: so a long prompt takes a few events, and a router a few look-ups.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

__all__ = ["AllBlocksCleared", "BlockEvent", "BlockRemoved", "BlockStored", "marks"]

COARSEST = 256
"""Tokens between two marks, at most, unless a KV block has more."""


class BlockStored(msgspec.Struct, frozen=True, tag=True):
    """The tokens up to a mark are in memory, and others may attach to them."""

    block_hash: bytes
    """Of all tokens up to the mark."""
    parent_block_hash: bytes | None
    """That of the mark before; None: there is none."""
    token_ids: list[int]
    """From the mark before on."""
    block_size: int
    """Tokens in one of the engine's blocks, which say where marks are."""
    cache_salt: str = ""
    """Only requests with the same salt find it."""


class BlockRemoved(msgspec.Struct, frozen=True, tag=True):
    """The tokens up to these marks are not all in memory any more."""

    block_hashes: list[bytes]


class AllBlocksCleared(msgspec.Struct, frozen=True, tag=True):
    """Nothing is in memory."""


BlockEvent = BlockStored | BlockRemoved | AllBlocksCleared


def marks(block_size: int) -> Iterator[int]:
    """Yields the positions of marks: one block, two, four and so on to `COARSEST`, then equally far apart."""
    position = block_size
    while True:
        yield position
        position += position if position < COARSEST else max(block_size, COARSEST // block_size * block_size)
