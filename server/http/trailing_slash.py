"""Serves a path with a slash at its end like the path without: clients that join URLs add one by mistake."""

from __future__ import annotations

from starlette.types import ASGIApp, Receive, Scope, Send

__all__ = ["TrailingSlashMiddleware"]


class TrailingSlashMiddleware:
    """Takes the slash away, without a redirect, which would lose the body of a POST in many clients."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and scope["path"].endswith("/"):
            scope["path"] = scope["path"].rstrip("/") or "/"
        await self._app(scope, receive, send)
