"""How large the request is that a connection is sending: its headers, its body, and the frames around it."""

from __future__ import annotations

from turnout.core import limits
from turnout.server.http.errors import ApiError

__all__ = ["RequestSize"]

FRAMES_PER_BYTE = 16
"""Bytes around a byte of a body, for a client that sends each byte as a chunk of its own."""


class RequestSize:
    """Counts what has come of one request. Each method returns what is wrong with it, or None."""

    def __init__(self) -> None:
        self.body = 0
        """Bytes of the body."""
        self._received = self._parsed = self._headers = self._frames = 0

    def header(self, size: int, number: int = 1) -> ApiError | None:
        """A header has been read, or a part of the request line (`number` 0)."""
        self._parsed += size
        self._headers += number
        if self._headers > limits.HEADERS.most:
            return ApiError(431, f"the request has more than {limits.HEADERS.whole} headers")
        return self._too_large(self._parsed)

    def header_bytes(self, size: int) -> ApiError | None:
        """Bytes have come that do not complete the headers."""
        self._received += size
        return self._too_large(self._received)

    def framed_bytes(self, size: int, of_body: int) -> ApiError | None:
        """Bytes have come after the headers; `of_body` of them are the body's."""
        self._frames += size - of_body
        if self._frames > limits.HEADER_BYTES.most + FRAMES_PER_BYTE * self.body:
            return ApiError(400, "the request's body is little beside its chunks' frames")
        return None

    def _too_large(self, size: int) -> ApiError | None:
        if size <= limits.HEADER_BYTES.most:
            return None
        message = f"the request line and headers are larger than {limits.HEADER_BYTES.whole:,} bytes"
        return ApiError(431, message)
