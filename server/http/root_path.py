"""Serves every path under a prefix too, for servers behind a proxy that gives them one."""

from __future__ import annotations

from starlette.types import ASGIApp, Receive, Scope, Send

__all__ = ["RootPathMiddleware"]


class RootPathMiddleware:
    """Takes the prefix away, before anything looks at the path; some proxies have done that already."""

    def __init__(self, app: ASGIApp, root: str) -> None:
        self._app, self._root = app, root

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            path: str = scope["path"]
            if self._root and (path == self._root or path.startswith(f"{self._root}/")):
                scope["path"] = path[len(self._root) :] or "/"
        await self._app(scope, receive, send)
