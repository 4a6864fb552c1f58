"""Counts the requests that engines are answering, with text, embeddings or scores, to their last byte."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from turnout.core.clock import Clock, monotonic

__all__ = ["GENERATING", "LoadMiddleware", "ServerLoad"]

GENERATING = frozenset(
    {
        "/v1/completions",
        "/v1/chat/completions",
        "/v1/responses",
        "/v1/messages",
        "/api/chat",
        "/api/generate",
        "/infill",
        "/v1/embeddings",
        "/v1/rerank",
        "/rerank",
        "/v2/rerank",
        "/v1/score",
        "/score",
        "/classify",
        "/pooling",
        "/api/embed",
        "/api/embeddings",
    }
)


class ServerLoad:
    """The clients' requests that engines answer."""

    def __init__(self, clock: Clock = monotonic) -> None:
        self._clock = clock
        self.requests = 0
        """How many there are now."""
        self.waiting = 0
        """How many of them have got nothing yet."""
        self.ended = -math.inf
        """When the last of them ended, in seconds on the clock."""
        self.changed: Callable[[], None] = _nothing
        """Called when the numbers have changed."""

    @contextmanager
    def request(self) -> Iterator[Callable[[], None]]:
        """A request, for as long as the block lasts; what is yielded is called when its response begins."""
        waits = True

        def begins() -> None:
            nonlocal waits
            if waits:
                waits = False
                self.change(0, -1)

        self.change(1, 1)
        try:
            yield begins
        finally:
            begins()
            self.change(-1, 0)

    def change(self, requests: int, waiting: int) -> None:
        """Note how many more there are now."""
        self.requests += requests
        self.waiting += waiting
        if requests < 0:
            self.ended = self._clock()
        self.changed()


def _nothing() -> None:
    pass


class LoadMiddleware:
    """Counts into `load`."""

    def __init__(self, app: ASGIApp, load: ServerLoad) -> None:
        self._app = app
        self._load = load

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["path"] not in GENERATING:
            await self._app(scope, receive, send)
            return
        with self._load.request() as begins:

            async def send_counted(message: Message) -> None:
                if message["type"] == "http.response.start":
                    begins()
                await send(message)

            await self._app(scope, receive, send_counted)
