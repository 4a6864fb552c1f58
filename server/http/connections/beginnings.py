"""Has requests that come at once begin a few at a time, and those that ask for health before all of them."""

from __future__ import annotations

from collections.abc import Collection

from starlette.types import ASGIApp, Receive, Scope, Send

from turnout.server.http.bodies.pace import Pace

__all__ = ["BeginningsMiddleware"]

AT_ONCE = 8
"""Requests that begin in a turn of the event loop, which takes them 3 ms: each is checked, decoded and handed
on. A hundred in one turn would take as long as others should wait at most."""


class BeginningsMiddleware:
    """Lets so many requests through in a turn of the event loop, first come, first served."""

    def __init__(self, app: ASGIApp, exempt: Collection[str], most: int = AT_ONCE) -> None:
        """exempt: paths whose requests begin at once."""
        self._app, self._exempt, self._pace = app, exempt, Pace(most)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and scope["path"] not in self._exempt:
            await self._pace.take(1)
        await self._app(scope, receive, send)
