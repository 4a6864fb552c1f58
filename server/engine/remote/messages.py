"""What a server and a worker say to each other beside commands and events.

Each message is two frames: what it is, and its content. Control messages are JSON, so that two versions of
Turnout understand each other well enough to refuse.
"""

from __future__ import annotations

from enum import Enum

import msgspec

__all__ = ["Hello", "Kind", "Refused", "Sent", "Tick", "Welcome", "number_and_events", "numbered"]

NUMBER_BYTES = 8


class Kind(bytes, Enum):
    """The first frame."""

    HELLO = b"hello"
    """From a server that wants the engine for itself."""
    COMMAND = b"command"
    """A `Command`, as msgpack."""
    SENT = b"sent"
    """From a server, at each tick: what it has sent."""
    BYE = b"bye"
    """From a server that leaves."""
    WELCOME = b"welcome"
    """The engine is the server's; it may be loading yet."""
    REFUSED = b"refused"
    """It is not, and will not be."""
    WAIT = b"wait"
    """It is not yet: another server has it."""
    EVENTS = b"events"
    """Events of the engine, as msgpack, `numbered`."""
    TICK = b"tick"
    """What time it is at the worker, and what it has sent."""
    DIED = b"died"
    """The engine has ended: its `Death`."""


class Hello(msgspec.Struct, frozen=True, omit_defaults=True):
    """Introduces a server."""

    version: str
    changes: str = ""
    """What it wants changed of the configuration that the worker has for its engine: as JSON, by field."""
    cpu_kernels: str = ""
    """Those of its other engines, to be taken where the worker's options leave the choice; empty: none."""


class Welcome(msgspec.Struct, frozen=True):
    """Answers a server that gets the engine."""

    version: str
    clock: float
    """Seconds on the worker's clock, which is the engine's."""


class Refused(msgspec.Struct, frozen=True):
    """Says why a server does not get the engine, as a clause that follows "the worker"."""

    reason: str


class Tick(msgspec.Struct, frozen=True):
    """The time; also tells the worker whether the server is there.

    A network box that drops bytes of a connection may drop whole messages, the last ones too, which would be
    waited for forever. Messages come in order, so each end compares how many have come with how many were
    sent before.
    """

    clock: float
    events: int
    """Messages of events that the worker has sent to this server."""
    missed: bool
    """Commands of the server have not come."""


class Sent(msgspec.Struct, frozen=True):
    """Answers a tick."""

    commands: int
    """Messages of commands that the server has sent."""


def numbered(number: int, events: bytes) -> bytes:
    """A message of events with its number, from 0 on for each server: after a gap, tokens are missing."""
    return number.to_bytes(NUMBER_BYTES, "big") + events


def number_and_events(message: bytes) -> tuple[int, memoryview]:
    """What `numbered` has put together."""
    return int.from_bytes(message[:NUMBER_BYTES], "big"), memoryview(message)[NUMBER_BYTES:]
