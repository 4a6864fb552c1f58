"""Server-sent events, and what a server says of its errors: for the load generator and ``turnout chat``."""

from __future__ import annotations

from typing import Generic, TypeVar

import msgspec

__all__ = ["MOST_CHARACTERS", "EventReader", "error_message", "error_text"]

T = TypeVar("T")

MOST_BYTES = 2**24
"""Of an event: more than any completion has. A server may send a line that never ends."""
MOST_CHARACTERS = 500
"""Of a server's error message that is shown."""


class EventReader(Generic[T]):
    """Cuts a byte stream into events, and decodes the JSON of each as a `T`."""

    def __init__(self, kind: type[T]) -> None:
        self._decode = msgspec.json.Decoder(kind).decode
        self._rest = b""
        self.done = False
        """The stream has said that it is complete."""

    def feed(self, data: bytes) -> list[T]:
        """The events that `data` completes. Raises ValueError for content that is not a `T`, or too long."""
        *lines, self._rest = (self._rest + data).split(b"\n")
        if len(self._rest) > MOST_BYTES:
            raise ValueError(f"the server sent a line of more than {MOST_BYTES:,} bytes")
        events = []
        for line in lines:
            if not line.startswith(b"data:"):
                continue
            content = line[5:].strip()
            if content == b"[DONE]":
                self.done = True
            else:
                events.append(self._decoded(content))
        return events

    def _decoded(self, content: bytes) -> T:
        try:
            return self._decode(content)
        except (msgspec.DecodeError, RecursionError) as error:
            raise ValueError(
                f"expected a completion, but the server sent {content[:200]!r} ({error})"
            ) from None


def error_text(body: bytes) -> str:
    """The message of OpenAI's error object, or else the beginning of a response's body."""
    try:
        return error_message(msgspec.json.decode(body))
    except (msgspec.DecodeError, RecursionError):
        return body.decode(errors="replace").strip()[:200]


def error_message(content: object) -> str:
    """The innermost message of an error object."""
    while isinstance(content, dict):
        content = content.get("error") or content.get("message") or content.get("detail")
    return str(content)[:MOST_CHARACTERS]
