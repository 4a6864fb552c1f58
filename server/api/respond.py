"""Answering: whole, or as server-sent events."""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator
from contextlib import aclosing, suppress

import msgspec
from msgspec import UNSET
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from turnout.core.errors import TurnoutError
from turnout.server.api.answer import Answer
from turnout.server.api.generation import Generation, Update
from turnout.server.http.disconnect import while_connected
from turnout.server.http.errors import error_body
from turnout.server.http.json_response import JsonResponse
from turnout.server.protocol.base import GenerationRequest
from turnout.server.protocol.responses import Choice, encode
from turnout.text.choice import Piece

__all__ = ["respond"]

logger = logging.getLogger(__name__)

DONE = b"data: [DONE]\n\n"


async def respond(
    request: Request, asked: GenerationRequest, generation: Generation, answer: Answer
) -> Response:
    """Raises what the engine refuses, and ClientDisconnect, before anything has been sent."""
    if not asked.stream:
        pieces = await while_connected(request.receive, _collect(generation))
        choices = [
            answer.whole(update, generation.prompt_of(update.choice)) for update in generation.best(pieces)
        ]
        return JsonResponse(answer.envelope(choices, generation))
    updates = generation.updates()
    # A refusal must still become a status code, so the response starts with the first update.
    first = await while_connected(request.receive, _first(updates))
    return EventStream(_events(generation, answer, first, updates, with_usage=asked.include_usage))


# ------------------------------------------------------------------ whole


async def _collect(generation: Generation) -> dict[int, Piece]:
    updates: dict[int, list[Piece]] = {}
    async with aclosing(generation.updates()) as stream:
        async for index, piece in stream:
            updates.setdefault(index, []).append(piece)
    return {index: _joined(pieces) for index, pieces in updates.items()}


def _joined(pieces: list[Piece]) -> Piece:
    text = "".join(piece.text for piece in pieces)
    shown = [token for piece in pieces for token in piece.shown]
    return pieces[-1]._replace(text=text, shown=shown)


# ------------------------------------------------------------------ streamed


class EventStream(StreamingResponse):
    """Stops generating when the client leaves, also while there is nothing to send."""

    media_type = "text/event-stream"

    def __init__(self, events: AsyncGenerator[bytes, None]) -> None:
        super().__init__(events, headers={"Cache-Control": "no-cache", "X-Accel-Buffering": "no"})
        self._events = events

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async with aclosing(self._events):
            with suppress(ClientDisconnect):
                await while_connected(receive, self.stream_response(send))


async def _first(updates: AsyncGenerator[Update, None]) -> Update | None:
    return await anext(updates, None)


async def _events(
    generation: Generation,
    answer: Answer,
    first: Update | None,
    updates: AsyncGenerator[Update, None],
    *,
    with_usage: bool,
) -> AsyncGenerator[bytes, None]:
    no_usage = None if with_usage else UNSET
    async with aclosing(updates):
        try:
            for opening in _openings(generation, answer):
                yield _event(answer.chunk([opening], no_usage))
            for choice in answer.chunks(first) if first else ():
                yield _event(answer.chunk([choice], no_usage))
            async for update in updates:
                for choice in answer.chunks(update):
                    yield _event(answer.chunk([choice], no_usage))
            if with_usage or generation.timing is not UNSET:
                usage = generation.usage if with_usage else UNSET
                yield _event(answer.chunk([], usage, generation.timing))
        except Exception as error:
            if not isinstance(error, TurnoutError):
                logger.exception("a stream failed")
            yield _event(error_body(error))
    yield DONE


def _openings(generation: Generation, answer: Answer) -> list[Choice]:
    openings = [answer.opening(index) for index in range(generation.choice_count)]
    return [opening for opening in openings if opening is not None]


def _event(content: msgspec.Struct) -> bytes:
    return b"data: " + encode(content) + b"\n\n"
