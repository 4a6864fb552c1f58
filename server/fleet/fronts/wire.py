"""The socket between a front and the fleet's process, for an event loop at each end.

A ZeroMQ pair over a Unix socket in a private folder. What is sent in a turn of the event loop is one message:
so a step's deltas cost a front one message, however many requests it has.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from pathlib import Path
from typing import Any, Generic, TypeVar

import msgspec
import zmq

from turnout.core.clock import monotonic
from turnout.core.process import check_room
from turnout.core.types.messages.reading import MessageReader

__all__ = ["Wire"]

LINGER_MS = 1000
"""Time to get the last message out."""
TURN_SECONDS = 0.005
"""How long messages may keep the event loop from other work."""

Said = TypeVar("Said")
Heard = TypeVar("Heard")


class Wire(Generic[Said, Heard]):
    """One end. Its event loop calls everything.

    ZeroMQ's descriptor signals a change of state only once, so that reads follow each write.
    """

    def __init__(self, url: str, heard: Any, *, bind: bool) -> None:
        """`url`: `ipc://` and a path. `heard`: the union of what the other end says.

        Raises OSError if the system has no room for it.
        """
        check_room()
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self._encoder = msgspec.msgpack.Encoder()
        self._reader: MessageReader[Heard] = MessageReader(heard)
        self._hear: Callable[[Heard], None] | None = None
        self._out: list[Said] = []
        self._closed = False
        self._file = Path(url.removeprefix("ipc://")) if bind else None
        try:
            self._socket = self._context.socket(zmq.PAIR)
            self._socket.set_hwm(0)
            self._socket.linger = LINGER_MS
            if bind:
                self._socket.bind(url)
            else:
                self._socket.connect(url)
        except zmq.ZMQError as error:
            self._context.destroy(linger=0)
            raise OSError(error.errno, str(error)) from error

    def listen(self, hear: Callable[[Heard], None]) -> None:
        """Pass each message to `hear` from now on."""
        self._hear = hear
        asyncio.get_running_loop().add_reader(self._socket.fileno(), self._receive)
        self._receive()

    def send(self, message: Said) -> None:
        """Send a message at the end of this turn of the event loop; does nothing once this end is closed."""
        if self._closed:
            return
        if not self._out:
            asyncio.get_running_loop().call_soon(self._flush)
        self._out.append(message)

    def _flush(self) -> None:
        if self._closed or not self._out:
            return
        out, self._out = self._out, []
        with contextlib.suppress(zmq.Again):  # the queue is unlimited: the other end has left
            self._socket.send(self._encoder.encode(out), zmq.NOBLOCK)
        self._receive()

    def _receive(self) -> None:
        began = monotonic()
        while not self._closed and self._hear is not None:
            try:
                data = self._socket.recv(zmq.NOBLOCK)
            except zmq.Again:
                return
            for message in self._reader.read(data):
                self._hear(message)
            if monotonic() - began > TURN_SECONDS:
                asyncio.get_running_loop().call_soon(self._receive)
                return

    def close(self, linger: int = 0) -> None:
        """`linger`: milliseconds that what was sent may take to leave."""
        if self._closed:
            return
        if linger:
            self._flush()
        self._closed = True
        if self._hear is not None:
            asyncio.get_running_loop().remove_reader(self._socket.fileno())
        self._context.destroy(linger=linger)
        if self._file is not None:  # ZeroMQ leaves it
            self._file.unlink(missing_ok=True)
