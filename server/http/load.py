"""Counts the requests that are being answered with generated text, from their first byte to their last."""

from __future__ import annotations

from starlette.types import ASGIApp, Receive, Scope, Send

__all__ = ["LoadMiddleware", "ServerLoad"]

GENERATING = frozenset({"/v1/completions", "/v1/chat/completions"})


class ServerLoad:
    """The number of requests now."""

    def __init__(self) -> None:
        self.requests = 0


class LoadMiddleware:
    """Counts into `load`."""

    def __init__(self, app: ASGIApp, load: ServerLoad) -> None:
        self._app = app
        self._load = load

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["path"] not in GENERATING:
            await self._app(scope, receive, send)
            return
        self._load.requests += 1
        try:
            await self._app(scope, receive, send)
        finally:
            self._load.requests -= 1
