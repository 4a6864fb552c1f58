"""Responds to a client with what is generated for it: whole, or streamed as it comes."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Iterator
from contextlib import aclosing, contextmanager, suppress

from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from turnout.core.errors import RequestError, TurnoutError
from turnout.server.generation.generation import Generation
from turnout.server.http.access.auth import count_tokens
from turnout.server.http.disconnect import while_connected
from turnout.server.http.json_response import JsonResponse
from turnout.server.http.json_slices import encode_in_slices
from turnout.server.renderers.renderer import Renderer
from turnout.text.choice_text import TextDelta

__all__ = ["respond"]

logger = logging.getLogger(__name__)

LARGE = 8192
"""Entries from which on a response is rendered in a thread: on the event loop they would take 10 ms."""


async def respond(request: Request, generation: Generation, renderer: Renderer, *, stream: bool) -> Response:
    """Raises what the engine refuses, and ClientDisconnect, before anything has been sent."""
    logger.debug("generates for %s", generation.requests[0].id)
    with _counted(request, generation):
        if stream:
            deltas = generation.deltas()
            # A refusal must still become a status code, so the response starts with the first delta.
            first = await while_connected(request.receive, _first(deltas))
            return EventStream(_events(generation, renderer, first, deltas), renderer.media_type)
        choices = await while_connected(request.receive, generation.choices())
    if generation.entries < LARGE:
        body = renderer.whole(choices, generation)
        await renderer.keep(generation)
        return JsonResponse(body)
    body = await while_connected(request.receive, asyncio.to_thread(renderer.whole, choices, generation))
    await renderer.keep(generation)
    content = await while_connected(request.receive, asyncio.to_thread(encode_in_slices, body))
    return Response(content, media_type=JsonResponse.media_type)


@contextmanager
def _counted(request: Request, generation: Generation) -> Iterator[None]:
    """Counts the tokens of a request for its key, unless the engine refuses the request."""
    count_tokens(request, lambda: generation.prompt_tokens + generation.completion_tokens)
    try:
        yield
    except RequestError:
        count_tokens(request, lambda: 0)
        raise


class EventStream(StreamingResponse):
    """Closes the generator of events when the client leaves, even while there is nothing to send."""

    def __init__(self, events: AsyncGenerator[bytes, None], media_type: str) -> None:
        headers = {"Cache-Control": "no-cache", "X-Accel-Buffering": "no"}
        super().__init__(events, headers=headers, media_type=media_type)
        self._events = events

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async with aclosing(self._events):
            with suppress(ClientDisconnect):
                await while_connected(receive, self.stream_response(send))


async def _first(deltas: AsyncGenerator[TextDelta, None]) -> TextDelta | None:
    return await anext(deltas, None)


async def _events(
    generation: Generation,
    renderer: Renderer,
    first: TextDelta | None,
    deltas: AsyncGenerator[TextDelta, None],
) -> AsyncGenerator[bytes, None]:
    opened: set[int] = set()
    async with aclosing(deltas):
        try:
            if first is not None:
                yield await _opened(first, generation, renderer, opened)
            async for delta in deltas:
                if delta.index in opened:
                    yield renderer.delta(delta, generation)
                else:
                    yield await _opened(delta, generation, renderer, opened)
            await renderer.keep(generation)
            if closing := renderer.closing(generation):
                yield closing
        except Exception as error:
            if not isinstance(error, TurnoutError):
                logger.exception("a stream failed")
            yield renderer.error(error)
    yield renderer.end()


async def _opened(delta: TextDelta, generation: Generation, renderer: Renderer, opened: set[int]) -> bytes:
    """The events of a choice's first delta, after those that open the choice, which is noted in `opened`."""
    opened.add(delta.index)
    if generation.prompt_of(delta.index) is None:
        opening = renderer.opening(delta.index, generation)
    else:  # a long prompt has many log-probabilities
        opening = await asyncio.to_thread(renderer.opening, delta.index, generation)
    return opening + renderer.delta(delta, generation)
