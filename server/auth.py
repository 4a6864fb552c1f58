"""The API key."""

from __future__ import annotations

import hmac

from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.types import ASGIApp, Receive, Scope, Send

from turnout.server.errors import ApiError, respond_to_error

__all__ = ["RequireKey"]

OPEN = frozenset({"/health"})
"""Paths that monitors ask without a key."""


class RequireKey:
    """Middleware: without the right bearer token, 401."""

    def __init__(self, app: ASGIApp, key: str) -> None:
        self._app = app
        self._expected = f"Bearer {key}".encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["path"] in OPEN or self._allows(Headers(scope=scope)):
            await self._app(scope, receive, send)
            return
        error = ApiError(
            401,
            "a valid API key is required, as the header 'Authorization: Bearer KEY'",
            code="invalid_api_key",
            headers={"WWW-Authenticate": "Bearer"},
        )
        response = await respond_to_error(Request(scope), error)
        await response(scope, receive, send)

    def _allows(self, headers: Headers) -> bool:
        """In a time that does not tell how much of the key was right."""
        given = headers.get("authorization", "").encode("latin-1")
        return hmac.compare_digest(given, self._expected)
