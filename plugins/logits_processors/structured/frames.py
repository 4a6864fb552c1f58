"""Messages on a stream socket: four bytes of length, then MessagePack."""

from __future__ import annotations

import socket
import struct
from typing import TypeVar

import msgspec

from turnout.core.types.structured_outputs import StructuredOutputs

__all__ = ["Job", "Verdict", "receive", "send"]

LENGTH = struct.Struct("!I")
Message = TypeVar("Message", bound=msgspec.Struct)


class Job(msgspec.Struct, frozen=True):
    """A form to be tried."""

    form: StructuredOutputs
    seconds: float
    """Processor time after which the worker's process is killed."""
    last: bool = False
    """Whether the worker is to end then."""


class Verdict(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What became of a job."""

    source: str = ""
    """The form in llguidance's notation, if it can be compiled."""
    reason: str = ""
    """Why it cannot."""
    signal: int = 0
    """What killed the process at it."""
    first: bytes = b""
    """The mask before the first token, as int32 words, if the form says where its text is free."""
    memory: int = 0
    """Bytes that the compiled form takes, about."""
    last: bool = False
    """Whether the worker has ended."""


def send(to: socket.socket, message: msgspec.Struct) -> None:
    """Raises OSError if the other end is closed."""
    data = msgspec.msgpack.encode(message)
    to.sendall(LENGTH.pack(len(data)) + data)


def receive(source: socket.socket, kind: type[Message]) -> Message | None:
    """Returns the next message; None if the other end is closed. Raises TimeoutError as the socket is set."""
    head = _exactly(source, LENGTH.size)
    body = None if head is None else _exactly(source, LENGTH.unpack(head)[0])
    return None if body is None else msgspec.msgpack.decode(body, type=kind)


def _exactly(source: socket.socket, count: int) -> bytes | None:
    parts = bytearray()
    while len(parts) < count:
        try:
            part = source.recv(min(count - len(parts), 2**20))
        except ConnectionError:
            return None
        if not part:
            return None
        parts += part
    return bytes(parts)
