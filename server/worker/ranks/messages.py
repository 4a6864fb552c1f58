"""What a proxy beside rank 0 and the host of a rank say to each other: two frames, a kind and its content."""

from __future__ import annotations

from enum import Enum

import msgspec

__all__ = ["Kind", "Order"]


class Kind(bytes, Enum):
    """The first frame."""

    START = b"start"
    """From a proxy, once: its `Order`, as JSON."""
    FRAME = b"frame"
    """To a follower, from rank 0."""
    BEAT = b"beat"
    """From a proxy: rank 0's machine is there."""
    END = b"end"
    """From a proxy: no more frames come."""
    BEGUN = b"begun"
    """The follower's process has been started. It says nothing before it has loaded libraries."""
    WORD = b"word"
    """From a follower; without content a sign of life."""
    GONE = b"gone"
    """The follower has ended: how, as a clause, or nothing where it was told to."""
    REFUSED = b"refused"
    """There will be no follower: why, as a clause that follows "the worker"."""


class Order(msgspec.Struct, frozen=True):
    """A rank to start."""

    version: str
    """Of Turnout beside rank 0."""
    engine: str
    """Names the engine: its ranks on one machine find each other there."""
    rank: int
    size: int
    network: str
    """Where ranks of several machines meet."""
    beat: float
    """Seconds between two signs of life."""
    config: str
    """An `EngineConfig`, as JSON."""
