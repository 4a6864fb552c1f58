"""Checks the API key and the admin key, and who may use /admin when there is no admin key."""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
from urllib.parse import urlsplit

from starlette.requests import Request
from starlette.types import ASGIApp, Receive, Scope, Send

from turnout.config import ServerConfig
from turnout.server.http.errors import ApiError, respond_to_error

__all__ = ["AuthMiddleware", "client_of"]

OPEN = frozenset({"/health", "/ping", "/load", "/metrics"})
"""Paths that need no key, for monitoring and load balancers."""
ADMIN = "/admin/"


def client_of(request: Request) -> str:
    """A name for the API key that a request was sent with, required or not; empty without a key."""
    key = _bearer_token(request)
    return f"key-{hashlib.sha256(key).hexdigest()[:16]}" if key else ""


class AuthMiddleware:
    """Responds 401 without the right key, and 403 to /admin from elsewhere if there is no admin key."""

    def __init__(self, app: ASGIApp, config: ServerConfig) -> None:
        self._app = app
        self._api_key = config.api_key
        self._admin_key = config.admin_key

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        refusal = self._refusal(Request(scope)) if scope["type"] == "http" else None
        if refusal is None:
            await self._app(scope, receive, send)
        else:
            response = await respond_to_error(Request(scope), refusal)
            await response(scope, receive, send)

    def _refusal(self, request: Request) -> ApiError | None:
        path = request.scope["path"]
        if path in OPEN:
            return None
        admin = path.startswith(ADMIN)
        if admin and self._admin_key is not None:
            return None if _has(request, self._admin_key) else _unauthorized("admin key", "invalid_admin_key")
        if self._api_key is not None and not _has(request, self._api_key):
            return _unauthorized("API key", "invalid_api_key")
        return _forbidden() if admin and not _is_local(request) else None


def _bearer_token(request: Request) -> bytes:
    scheme, _, token = request.headers.get("authorization", "").partition(" ")
    return token.strip(" ").encode("latin-1") if scheme.lower() == "bearer" else b""


def _has(request: Request, key: str) -> bool:
    """Compares in constant time, which does not reveal how much of the key was right."""
    return hmac.compare_digest(_bearer_token(request), key.encode())


def _is_local(request: Request) -> bool:
    """The request comes from this machine, neither through a proxy nor from another site's web page.

    A page can make its visitor's browser send requests to this server, under any host name whose owner points
    it here (DNS rebinding). So both the host and the origin must be loopback.
    """
    headers = request.headers
    sender = request.client.host if request.client else ""
    addressed, page = f"//{headers.get('host', '')}", headers.get("origin", "//localhost")
    forwarded = {"forwarded", "via", "x-forwarded-for", "x-real-ip"} & set(headers.keys())
    return not forwarded and _is_loopback(sender) and all(_names_loopback(url) for url in (addressed, page))


def _names_loopback(url: str) -> bool:
    try:
        host = urlsplit(url).hostname
    except ValueError:
        return False
    return host == "localhost" or _is_loopback(host or "")


def _is_loopback(address: str) -> bool:
    try:
        return ipaddress.ip_address(address).is_loopback
    except ValueError:
        return False


def _unauthorized(what: str, code: str) -> ApiError:
    message = f"a valid {what} is required, as the header 'Authorization: Bearer KEY'"
    return ApiError(401, message, code=code, headers={"WWW-Authenticate": "Bearer"})


def _forbidden() -> ApiError:
    message = "without --admin-key, /admin answers only to clients on the server's own machine"
    return ApiError(403, message, code="admin_forbidden")
