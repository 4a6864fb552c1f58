"""Responds to a client with what is generated for it: whole, or streamed as it comes."""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import aclosing, contextmanager

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from turnout.core.errors import RequestError, TurnoutError
from turnout.server.api.context import context_of
from turnout.server.api.direct_text import DirectText
from turnout.server.fleet.models.waiting import entry_of
from turnout.server.generation.generation import Generation
from turnout.server.http.access.auth import count_tokens
from turnout.server.http.connections.open_response import OPEN_RESPONSE
from turnout.server.http.disconnect import while_connected
from turnout.server.http.errors import error_code
from turnout.server.http.json_response import JsonResponse
from turnout.server.http.json_slices import encoded_pieces
from turnout.server.http.pieces import PieceResponse, PieceThread
from turnout.server.http.records.record import note_answer
from turnout.server.http.request_memory import HeldMemory, held_memory
from turnout.server.renderers.renderer import Renderer
from turnout.text.choice_text import TextDelta

__all__ = ["LARGE", "EventStream", "begin", "respond"]

logger = logging.getLogger(__name__)

LARGE = 8192
"""Entries from which on a response is rendered in a thread: on the event loop they would take 10 ms."""


async def respond(request: Request, generation: Generation, renderer: Renderer, *, stream: bool) -> Response:
    """Raises what the engine refuses, and ClientDisconnect, before anything has been sent."""
    logger.debug("generates for %s", generation.requests[0].id)
    thread, memory = context_of(request).rendering, held_memory(request)
    begin(request, generation)
    note_answer(request.scope, generation)
    with _counted(request, generation), memory.gathering() as generation.hold:
        if stream:
            deltas = generation.deltas()
            # A refusal must still become a status code, so the response starts with the first delta.
            first = await while_connected(request.receive, _first(deltas))
            direct = DirectText(generation, renderer)
            events = _events(generation, renderer, first, deltas, thread, direct)
            return EventStream(
                events,
                memory,
                renderer.media_type,
                lambda error: renderer.error(error) + renderer.end(),
                direct,
            )
        choices = await while_connected(request.receive, generation.choices())
    if generation.entries < LARGE:
        body = renderer.whole(choices, generation)
        await renderer.keep(generation)
        return Response(b"".join(encoded_pieces(body)), media_type=JsonResponse.media_type)
    body = await while_connected(request.receive, thread.run(lambda: renderer.whole(choices, generation)))
    await renderer.keep(generation)
    return PieceResponse(thread.made(encoded_pieces(body)), JsonResponse.media_type, memory)


def begin(request: Request, generation: Generation) -> None:
    """Count the time for which the request waited for its model, and let the next one in that waits."""
    entry = entry_of(request)
    if entry.waited:
        generation.count_wait(entry.waited)
    entry.begun()


@contextmanager
def _counted(request: Request, generation: Generation) -> Iterator[None]:
    """Counts the tokens of a request for its key, unless the engine refuses the request."""
    count_tokens(request, lambda: generation.counted_tokens)
    try:
        yield
    except RequestError:
        generation.refused = True
        raise


class EventStream(PieceResponse):
    """A stream of server-sent events."""

    def __init__(
        self,
        events: AsyncGenerator[bytes, None],
        memory: HeldMemory,
        media_type: str = Renderer.media_type,
        ended_by: Callable[[Exception], bytes] | None = None,
        direct: DirectText | None = None,
    ) -> None:
        """direct: what writes events between those of `events`, once the response has begun."""
        super().__init__(events, media_type, memory, ended_by)
        self._direct = direct
        self.headers.update({"Cache-Control": "no-cache", "X-Accel-Buffering": "no"})

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if self._direct is not None and (response := scope.get(OPEN_RESPONSE)) is not None:
            self._direct.begin(response)
        await super().__call__(scope, receive, send)


async def _first(deltas: AsyncGenerator[TextDelta, None]) -> TextDelta | None:
    return await anext(deltas, None)


async def _events(
    generation: Generation,
    renderer: Renderer,
    first: TextDelta | None,
    deltas: AsyncGenerator[TextDelta, None],
    thread: PieceThread,
    direct: DirectText,
) -> AsyncGenerator[bytes, None]:
    opened = direct.opened
    async with aclosing(deltas):
        try:
            if first is not None:
                async for piece in _opened(first, generation, renderer, opened, thread):
                    yield piece
            async for delta in deltas:
                if delta.index in opened:
                    yield renderer.delta(delta, generation)
                else:
                    async for piece in _opened(delta, generation, renderer, opened, thread):
                        yield piece
            await renderer.keep(generation)
            if closing := renderer.closing(generation):
                yield closing
        except Exception as error:
            if not isinstance(error, TurnoutError):
                logger.exception("a stream failed")
            generation.error = error_code(error)
            yield renderer.error(error)
    yield renderer.end()


async def _opened(
    delta: TextDelta, generation: Generation, renderer: Renderer, opened: set[int], thread: PieceThread
) -> AsyncGenerator[bytes, None]:
    """The events of a choice's first delta, after those that open the choice, which is noted in `opened`."""
    opened.add(delta.index)
    opening = renderer.opening(delta.index, generation)
    if generation.prompt_of(delta.index) is None:
        begun = b"".join(opening)
        only_begins = begun and not (delta.shows or generation.token_ids)
        yield begun if only_begins else begun + renderer.delta(delta, generation)
        return
    async for piece in thread.made(opening):  # a long prompt has many log-probabilities
        yield piece
    yield renderer.delta(delta, generation)
