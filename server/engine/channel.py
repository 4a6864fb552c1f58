"""The two ends of the socket between a server and its engine.

A ZeroMQ pair over a Unix socket in a private folder, or over loopback TCP where there are no Unix sockets:
the launcher chooses.
Commands travel one by one, events in batches: a step's deltas are one message. Neither side waits for the
other: queues are unlimited, because requests are limited.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator
from types import TracebackType
from typing import Self

import msgspec
import zmq

from turnout.core.interfaces.launcher import Death
from turnout.core.process import check_room
from turnout.core.types.messages import Command, Event, Shutdown
from turnout.core.types.messages.reading import event_reader

__all__ = ["EngineChannel", "ServerChannel"]

logger = logging.getLogger(__name__)

LINGER_MS = 1000
"""Time to get the last message out."""


class EngineChannel:
    """The engine's end. Blocking, for one thread."""

    def __init__(self, context: zmq.Context[zmq.Socket[bytes]], address: str) -> None:
        self._socket = context.socket(zmq.PAIR)
        self._socket.set_hwm(0)
        self._socket.linger = LINGER_MS
        self._socket.connect(address)
        self._encoder = msgspec.msgpack.Encoder()
        self._decoder = msgspec.msgpack.Decoder(Command)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._socket.close()

    def send(self, events: list[Event]) -> None:
        self._socket.send(self._encoder.encode(events))

    def receive(self) -> Iterator[Command]:
        """The commands that have come so far."""
        while True:
            try:
                message = self._socket.recv(zmq.NOBLOCK)
            except zmq.Again:
                return
            try:
                command = self._decoder.decode(message)
            except msgspec.DecodeError as error:  # a server elsewhere, which has the worker's keys, is broken
                logger.error("a command that cannot be read is left out: %s", error)
                continue
            yield command

    def wait(self, seconds: float | None) -> None:
        """Wait until a command comes, or for that long; None: without limit."""
        self._socket.poll(None if seconds is None else round(seconds * 1000))


class ServerChannel:
    """The server's end, for an event loop: `fds` become readable when `receive` may have something.

    ZeroMQ's descriptor signals a change of state only once. So call `receive` after each signal and after
    each `send`.
    """

    def __init__(self, url: str) -> None:
        """`url`: the address to bind. Raises OSError if the system has no room for it."""
        check_room()
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self._encoder = msgspec.msgpack.Encoder()
        self._reader = event_reader()
        try:
            self._socket = self._context.socket(zmq.PAIR)
            self._socket.set_hwm(0)
            self._socket.linger = LINGER_MS
            self._departures = self._socket.get_monitor_socket(zmq.EVENT_DISCONNECTED)
            self._socket.bind(url)
            self.fds = (self._socket.fileno(),)
        except zmq.ZMQError as error:
            self.close()  # else the garbage collector would wait for the socket, for ever
            raise OSError(error.errno, str(error)) from error

    death: Death | None = None
    """The process's end is told by its launcher."""

    def send(self, command: Command) -> None:
        """Send a command; does nothing if the engine has left.

        The queue is unlimited, so a socket that takes no more has no peer. The server learns of that a moment
        later, and then hands the unfinished requests to the next engine.
        """
        self.pass_on(self._encoder.encode(command))

    def pass_on(self, command: bytes) -> None:
        """Send a command that is encoded already."""
        with contextlib.suppress(zmq.Again):
            self._socket.send(command, zmq.NOBLOCK)

    def receive(self) -> Iterator[list[Event]]:
        """Returns the events that have come so far, message by message.

        ZeroMQ's descriptor does not signal what is left if the caller stops before the end.
        """
        return map(self._reader.read, self.messages())

    def messages(self) -> Iterator[bytes]:
        """As `receive`, each message as it is encoded."""
        while not self._socket.closed:
            try:
                yield self._socket.recv(zmq.NOBLOCK)
            except zmq.Again:
                return

    def leave(self) -> bool:
        """Ask the engine to end. True: its process ends."""
        self.send(Shutdown())
        return True

    @property
    def left(self) -> bool:
        """The engine has disconnected: `receive` then has all that it ever sent."""
        return self._departures.closed or bool(self._departures.poll(0))

    def close(self) -> None:
        self._context.destroy(linger=0)
