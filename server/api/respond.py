"""Responds to a client with what is generated for it: whole, or streamed as it comes."""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator
from contextlib import aclosing, suppress

from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from turnout.core.errors import TurnoutError
from turnout.server.generation.generation import Generation
from turnout.server.http.disconnect import while_connected
from turnout.server.http.json_response import JsonResponse
from turnout.server.renderers.renderer import Renderer
from turnout.text.choice_text import TextDelta

__all__ = ["respond"]

logger = logging.getLogger(__name__)


async def respond(request: Request, generation: Generation, renderer: Renderer, *, stream: bool) -> Response:
    """Raises what the engine refuses, and ClientDisconnect, before anything has been sent."""
    logger.debug("generates for %s", generation.requests[0].id)
    if not stream:
        choices = await while_connected(request.receive, generation.choices())
        return JsonResponse(renderer.whole(choices, generation))
    deltas = generation.deltas()
    # A refusal must still become a status code, so the response starts with the first delta.
    first = await while_connected(request.receive, _first(deltas))
    return EventStream(_events(generation, renderer, first, deltas))


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
                yield _rendered(first, generation, renderer, opened)
            async for delta in deltas:
                yield _rendered(delta, generation, renderer, opened)
            if closing := renderer.closing(generation):
                yield closing
        except Exception as error:
            if not isinstance(error, TurnoutError):
                logger.exception("a stream failed")
            yield renderer.error(error)
    yield renderer.end()


def _rendered(delta: TextDelta, generation: Generation, renderer: Renderer, opened: set[int]) -> bytes:
    """The events of a delta, after those that open its choice. Notes the choices that were `opened`."""
    if delta.index in opened:
        return renderer.delta(delta, generation)
    opened.add(delta.index)
    return renderer.opening(delta.index, generation) + renderer.delta(delta, generation)
