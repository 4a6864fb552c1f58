"""Responses that are made piece by piece in a thread, as fast as their clients read."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import aclosing, suppress
from functools import partial
from typing import TypeVar

from starlette.requests import ClientDisconnect
from starlette.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from turnout.core.errors import Overloaded
from turnout.core.process import done_in
from turnout.server.http.disconnect import while_connected
from turnout.server.http.errors import error_code
from turnout.server.http.records.record import note_error
from turnout.server.http.request_memory import HeldMemory

__all__ = ["SEND_PIECE", "PieceResponse", "PieceThread"]

PIECE = 2**16
"""Bytes that are made, and sent, at once."""

SEND_PIECE = "turnout.send_piece"
"""In the scope: the connection's own `send`. Middleware looks at how responses begin and end; for each token
between, its six calls would take a tenth of the server's time."""

T = TypeVar("T")


class PieceThread:
    """One thread for all responses, so that the event loop competes with one for Python's lock.

    Responses take turns, a piece each.
    """

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="responses")

    async def run(self, work: Callable[[], T]) -> T:
        """The result of `work`, done in the thread."""
        return await done_in(self._thread, work)

    async def made(self, pieces: Iterable[bytes]) -> AsyncGenerator[bytes, None]:
        """The same bytes, in pieces of some size."""
        source = iter(pieces)
        while piece := await self.run(partial(_next, source)):
            yield piece


def _next(pieces: Iterator[bytes]) -> bytes:
    """The next piece to send; empty at the end."""
    parts: list[bytes] = []
    size = 0
    for part in pieces:
        parts.append(part)
        size += len(part)
        if size >= PIECE:
            break
    return b"".join(parts)


class PieceResponse(StreamingResponse):
    """Closes the generator of its pieces when the client leaves, even while there is nothing to send.

    Until it is sent, the memory that it holds may be taken for smaller requests: it then ends early.
    """

    def __init__(
        self,
        pieces: AsyncGenerator[bytes, None],
        media_type: str,
        memory: HeldMemory,
        ended_by: Callable[[Exception], bytes] | None = None,
    ) -> None:
        """ended_by: what to send last where it ends early; None: the connection is closed."""
        super().__init__(pieces, media_type=media_type)
        self._pieces, self._memory, self._ended_by = pieces, memory, ended_by

    async def gathered(self) -> bytes:
        """All pieces, of a response that is not sent itself."""
        return b"".join([piece async for piece in self._pieces])

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            async with aclosing(self._pieces):
                with suppress(ClientDisconnect), self._memory.growing():
                    await while_connected(receive, self._stream(send, scope.get(SEND_PIECE, send)))
        except Overloaded as error:
            note_error(scope, error_code(error))
            if self._ended_by is not None:
                await send({"type": "http.response.body", "body": self._ended_by(error)})

    async def _stream(self, send: Send, send_piece: Send) -> None:
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        async for piece in self._pieces:
            await send_piece({"type": "http.response.body", "body": piece, "more_body": True})
        await send({"type": "http.response.body", "body": b"", "more_body": False})
