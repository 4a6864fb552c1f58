"""A transport whose owner decides how it closes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

__all__ = ["GentleTransport"]


class GentleTransport(asyncio.Transport):
    """Passes everything on to a transport but `close`, which calls `close`.

    A socket that is closed while unread bytes wait in it sends a reset, which takes the response from the
    client before the client has read it.
    """

    def __init__(self, transport: asyncio.Transport, close: Callable[[], None]) -> None:
        super().__init__()
        self.inner = transport
        self._close = close

    def close(self) -> None:
        self._close()

    def write(self, data: bytes | bytearray | memoryview) -> None:
        if not self.inner.is_closing():  # asyncio would log each write
            self.inner.write(data)

    def write_eof(self) -> None:
        if self.inner.can_write_eof():  # TLS cannot end one direction alone
            self.inner.write_eof()

    def abort(self) -> None:
        self.inner.abort()

    def is_closing(self) -> bool:
        return self.inner.is_closing()

    def pause_reading(self) -> None:
        self.inner.pause_reading()

    def resume_reading(self) -> None:
        self.inner.resume_reading()

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return self.inner.get_extra_info(name, default)
