"""Has requests that come at once begin a few at a time, and ``/health`` before all of them."""

from __future__ import annotations

from starlette.types import ASGIApp, Receive, Scope, Send

from turnout.server.http.access.auth import HEALTH
from turnout.server.http.bodies.pace import Pace

__all__ = ["BeginningsMiddleware"]

AT_ONCE = 8
"""Requests that begin in a turn of the event loop, which takes them 3 ms: each is checked, decoded and handed
on. A hundred in one turn would take as long as others should wait at most."""


class BeginningsMiddleware:
    """Lets so many requests through in a turn of the event loop, first come, first served."""

    def __init__(self, app: ASGIApp, at_once: int = AT_ONCE) -> None:
        self._app, self._pace = app, Pace(at_once)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and scope["path"] not in HEALTH:
            await self._pace.take(1)
        await self._app(scope, receive, send)
