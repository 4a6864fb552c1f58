"""A transport whose owner decides how it closes, and that sends a turn's writes together."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

__all__ = ["GentleTransport"]

WAITING_BYTES = 16 * 2**10
"""More than this does not wait for the turn's end. Else a response that is written without a pause would not
learn that its client reads slowly."""


class GentleTransport(asyncio.Transport):
    """Passes everything on to a transport but `close`, which calls `close`.

    A socket that is closed while unread bytes wait in it sends a reset, which takes the response from the
    client before the client has read it.

    A response is written in parts: its headers, its events, its end. To send each by itself takes as long as
    making it, and wakes the client each time.
    """

    def __init__(self, transport: asyncio.Transport, close: Callable[[], None]) -> None:
        super().__init__()
        self._transport = transport
        self._close = close
        self._loop = asyncio.get_running_loop()
        self._waiting: list[bytes | bytearray | memoryview] = []
        self._size = 0
        """Bytes of what waits."""

    def close(self) -> None:
        self._close()

    def shut(self) -> None:
        """Close the transport itself, once all that was written has been sent."""
        self._send()
        self._transport.close()

    def write(self, data: bytes | bytearray | memoryview) -> None:
        if not self._waiting:
            self._loop.call_soon(self._send)
        self._waiting.append(data)
        self._size += len(data)
        if self._size > WAITING_BYTES:
            self._send()

    def write_at_once(self, data: bytes) -> None:
        """Write what is alone in this turn."""
        self._waiting.append(data)
        self._send()

    def write_eof(self) -> None:
        self._send()
        if self._transport.can_write_eof():  # TLS cannot end one direction alone
            self._transport.write_eof()

    def abort(self) -> None:
        self._waiting.clear()
        self._transport.abort()

    def is_closing(self) -> bool:
        return self._transport.is_closing()

    def get_write_buffer_size(self) -> int:
        return self._size + self._transport.get_write_buffer_size()

    def pause_reading(self) -> None:
        self._transport.pause_reading()

    def resume_reading(self) -> None:
        self._transport.resume_reading()

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return self._transport.get_extra_info(name, default)

    def _send(self) -> None:
        waiting, self._waiting, self._size = self._waiting, [], 0
        if waiting and not self._transport.is_closing():  # asyncio would log each write
            self._transport.write(waiting[0] if len(waiting) == 1 else b"".join(waiting))
