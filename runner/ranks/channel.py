"""Messages between rank 0 and a follower, over a pair of connected sockets that the follower inherits."""

from __future__ import annotations

import os
import select
import socket
import threading
import time
from collections.abc import Iterator

__all__ = ["Receiver", "Sender"]

HEAD = 4
"""Bytes of a message's length, in front of it."""
SPIN_SECONDS = 0.002
"""The next frame mostly comes sooner. A reader that looks again and again has it some 50 us earlier than one
that sleeps, and gives its core to others between two looks."""
READ_BYTES = 1 << 18


class Sender:
    """Writes messages. Several threads may send."""

    def __init__(self, sock: socket.socket) -> None:
        self._socket = sock
        self._lock = threading.Lock()

    def send(self, message: bytes) -> None:
        """Raises OSError if the other process is gone, or `close` was called."""
        with self._lock:
            self._socket.sendall(len(message).to_bytes(HEAD, "little") + message)

    def beat(self) -> None:
        """Sends an empty message unless that would wait: then there is something to read, and it has not been
        read."""
        if self._lock.acquire(blocking=False):
            try:
                self._socket.send(bytes(HEAD), socket.MSG_DONTWAIT)
            except BlockingIOError:
                pass
            finally:
                self._lock.release()

    def close(self) -> None:
        """Ends a `send` that another thread is in, and has the other process read to the end."""
        try:
            self._socket.shutdown(socket.SHUT_RDWR)
        except OSError:
            return

    def free(self) -> None:
        """Gives the descriptor back, when no thread sends any more."""
        self._socket.close()


class Receiver:
    """Reads messages. Only one thread may receive."""

    def __init__(self, sock: socket.socket) -> None:
        self._socket = sock
        self._poll = select.poll()
        self._poll.register(sock, select.POLLIN)
        self._unread = bytearray()

    def fileno(self) -> int:
        return self._socket.fileno()

    def free(self) -> None:
        """Gives the descriptor back, when no thread receives any more."""
        self._socket.close()

    def messages(self) -> Iterator[bytes]:
        """Yields messages until the other process closes its end, or ends."""
        while True:
            message = self._next()
            while message is None:
                if not self._read_soon():
                    return
                message = self._next()
            yield message

    def arrived(self) -> list[bytes] | None:
        """Returns the messages that are there, without waiting; None once the other end is closed and all is
        read."""
        open_ = True
        while open_ and (got := self._read()) is not None:
            open_ = bool(got)
        found = []
        while (message := self._next()) is not None:
            found.append(message)
        return found if found or open_ else None

    def _next(self) -> bytes | None:
        unread = self._unread
        end = HEAD + int.from_bytes(unread[:HEAD], "little")
        if len(unread) < max(end, HEAD):
            return None
        message = bytes(unread[HEAD:end])
        del unread[:end]
        return message

    def _read_soon(self) -> int:
        """Waits for bytes, at first actively; returns how many were read: none at the end."""
        until = time.monotonic() + SPIN_SECONDS
        while (got := self._read()) is None:
            if time.monotonic() < until:
                os.sched_yield()
            else:
                self._poll.poll()
        return got

    def _read(self) -> int | None:
        """Returns how many bytes were read; 0 at the end, None if there are none yet."""
        try:
            read = self._socket.recv(READ_BYTES, socket.MSG_DONTWAIT)
        except BlockingIOError:
            return None
        except ConnectionError:
            return 0
        self._unread += read
        return len(read)
