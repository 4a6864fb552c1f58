"""A streamed response of server-sent events."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing, suppress

import msgspec
from starlette.requests import ClientDisconnect
from starlette.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from turnout.server.http.disconnect import while_connected
from turnout.server.protocol.responses import encode

__all__ = ["EventStream", "event"]


def event(content: msgspec.Struct) -> bytes:
    """A server-sent event, its data as JSON."""
    return b"data: " + encode(content) + b"\n\n"


class EventStream(StreamingResponse):
    """Closes the generator of events when the client leaves, even while there is nothing to send."""

    media_type = "text/event-stream"

    def __init__(self, events: AsyncGenerator[bytes, None]) -> None:
        super().__init__(events, headers={"Cache-Control": "no-cache", "X-Accel-Buffering": "no"})
        self._events = events

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async with aclosing(self._events):
            with suppress(ClientDisconnect):
                await while_connected(receive, self.stream_response(send))
