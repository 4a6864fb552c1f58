"""Streams of events that begin with comments, before they have an answer, so that proxies keep them."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from starlette.requests import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

__all__ = ["EarlyEventsMiddleware", "with_comments"]

EVERY_SECONDS = 5.0
"""Between comments. Proxies close connections on which nothing comes for 15 seconds and more."""
_KEY = "turnout.early_events"
BEGINNING = {
    "type": "http.response.start",
    "status": 200,
    "headers": [
        (b"content-type", b"text/event-stream; charset=utf-8"),
        (b"cache-control", b"no-cache"),
        (b"x-accel-buffering", b"no"),
    ],
}

T = TypeVar("T")


async def with_comments(request: Request, work: Coroutine[Any, Any, T], comment: Callable[[], str]) -> T:
    """Await `work`, and write a comment now and then into the stream of events that it will be."""
    early: _EarlyEvents | None = request.scope.get(_KEY)
    writing = None if early is None else asyncio.create_task(early.keep_writing(comment))
    try:
        # In this task: a result that another has just brought would be lost where this one is cancelled.
        return await work
    finally:
        if writing is not None:
            writing.cancel()


class _EarlyEvents:
    """The events of one response. What would have been an error's status becomes an event."""

    def __init__(self, path: str, send: Send) -> None:
        self._path, self._send = path, send
        self._begun = False
        self._error: bytes | None = None
        """What has come of the body of an error."""

    async def keep_writing(self, comment: Callable[[], str]) -> None:
        while True:
            await asyncio.sleep(EVERY_SECONDS)
            await self._write(comment())

    async def _write(self, text: str) -> None:
        if not self._begun:
            await self._send(BEGINNING)
            self._begun = True  # not before: it may be cancelled while the client does not read
        line = " ".join(text.split())
        await self._send({"type": "http.response.body", "body": f": {line}\n\n".encode(), "more_body": True})

    async def send(self, message: Message) -> None:
        """Pass on what the application sends; it does not know that the response has begun."""
        if not self._begun:
            await self._send(message)
        elif message["type"] == "http.response.start":
            self._error = b"" if message["status"] >= 400 else None
        elif self._error is not None:
            self._error += message.get("body", b"")
            if not message.get("more_body", False):
                await self._send({"type": "http.response.body", "body": _event(self._path, self._error)})
        else:
            await self._send(message)


def _event(path: str, body: bytes) -> bytes:
    """The event of an error in a stream of the path's API, from the body that would have been sent."""
    if path.startswith("/v1/messages"):
        return b"event: error\ndata: " + body + b"\n\n"
    if path.startswith("/v1/responses"):
        told = {"type": "error", "sequence_number": 0, **json.loads(body).get("error", {})}
        fields = {name: told.get(name) for name in ("sequence_number", "code", "message", "param")}
        return b"event: error\ndata: " + json.dumps({"type": "error", **fields}).encode() + b"\n\n"
    done = b"" if path.endswith("/infill") else b"data: [DONE]\n\n"
    return b"data: " + body + b"\n\n" + done


class EarlyEventsMiddleware:
    """Lets a handler write comments before there is a response. The innermost, since it hides messages."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        early = _EarlyEvents(scope["path"], send)
        scope[_KEY] = early
        await self._app(scope, receive, early.send)
