"""Reads messages: where a part of one cannot be read, all the others are.

What a plugin gave can be encoded and yet not be what a message has: bytes for a list of tokens, or True for a
number.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any, Generic, TypeVar

import msgspec

from turnout.core.types.messages.deltas import Delta
from turnout.core.types.messages.events import Event, Failed, Reply

__all__ = ["UNREADABLE", "MessageReader", "check_readable", "event_reader"]

logger = logging.getLogger(__name__)

UNREADABLE = (TypeError, ValueError, OverflowError, RecursionError)
"""What encoding or decoding raises for values that a message cannot have."""

Part = TypeVar("Part")


class MessageReader(Generic[Part]):
    """Reads messages of several parts each."""

    def __init__(self, part: Any, instead: Callable[[bytes, str], Part | None] | None = None) -> None:
        """part: the type of a part. instead: returns what stands in place of a part that cannot be read, from
        that part and the reason; None: nothing does.
        """
        self._decoder: msgspec.msgpack.Decoder[list[Part]] = msgspec.msgpack.Decoder(list[part])
        self._part: msgspec.msgpack.Decoder[Part] = msgspec.msgpack.Decoder(part)
        self._instead = instead

    def read(self, message: bytes | memoryview) -> list[Part]:
        try:
            return self._decoder.decode(message)
        except UNREADABLE:
            return self._read_apart(message)

    def _read_apart(self, message: bytes | memoryview) -> list[Part]:
        found = []
        try:
            parts = msgspec.msgpack.decode(message, type=list[msgspec.Raw])
        except UNREADABLE as error:
            logger.error("a message that cannot be read is left out: %s", error)
            return []
        for raw in parts:
            try:
                found.append(self._part.decode(raw))
            except UNREADABLE as error:
                logger.error("a part of a message cannot be read: %s", error)
                instead = None if self._instead is None else self._instead(bytes(raw), str(error))
                if instead is not None:
                    found.append(instead)
        return found


def check_readable(value: object, kind: Any) -> None:
    """Raises one of `UNREADABLE` unless the value can be sent and read as a `kind`."""
    msgspec.msgpack.decode(msgspec.msgpack.encode(value), type=kind)


class _Named(msgspec.Struct):
    """What tells whom an event is for."""

    type: str
    request_id: str = ""
    id: str = ""


def event_reader() -> MessageReader[Event]:
    """Reads events. One that cannot be read is an error of the request or command that it is for."""
    return MessageReader(Event, _instead)


def _instead(event: bytes, reason: str) -> Event | None:
    try:
        named = msgspec.msgpack.decode(event, type=_Named)
    except UNREADABLE:
        return None
    message = f"a plugin gave what the server cannot read: {reason}"
    if named.request_id:
        return Delta(request_id=named.request_id, finish_reason="error", error=message, error_kind="internal")
    if named.id:
        return Reply(id=named.id, error=message, error_kind="internal")
    return Failed(message, final=True) if named.type == "Ready" else None
