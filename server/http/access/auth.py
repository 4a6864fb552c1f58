"""Decides who is served: by host and page, by key, and by what a key may use."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import NamedTuple

from starlette.requests import Request
from starlette.types import ASGIApp, Receive, Scope, Send

from turnout.config import ServerConfig
from turnout.core.interfaces.trial import SESSION_HEADER
from turnout.server.http.access.keys import Key, Keys, name_of
from turnout.server.http.access.sites import Sites, is_loopback, names_loopback
from turnout.server.http.errors import ApiError, respond_to_error

__all__ = [
    "ADMIN",
    "HEALTH",
    "OPEN",
    "AuthMiddleware",
    "Client",
    "by_admin",
    "client_of",
    "count_tokens",
    "going_on",
    "is_admin",
    "is_open",
    "key_name",
    "on_behalf_of",
]

logger = logging.getLogger(__name__)

OPEN = frozenset({"/health", "/live", "/ping", "/load", "/metrics", "/openapi.json", "/docs", "/console"})
"""Paths that need no key, for monitoring, load balancers and readers."""
CONSOLE = "/console/"
"""Files of a page that holds no data: what it shows, it asks of other paths, with a key."""
HEALTH = frozenset({"/health", "/live", "/ping"})
"""Paths that tell nothing, and are answered for any host and page."""
ADMIN = "/admin/"
CANCEL = "/cancel"
"""How paths end that cancel a batch or a response."""
PROFILES = frozenset({"/start_profile", "/stop_profile"})
"""By vLLM's names; they are as `/admin` is."""
METRICS = "/metrics"
_KEY, _TOKENS, _ADMIN, _NAME = "turnout.key", "turnout.tokens", "turnout.admin", "turnout.client"
_COUNTED = "turnout.counted"
"""What a request takes of its key's limits, until it ends."""


class Client(NamedTuple):
    """Whose request it is."""

    name: str
    """As policies see the client: the name of its key, else its `user`, else a name for its key. A key that
    the operator has named keeps its name: no client takes another's place by its `user`."""
    origin: str
    """As `RequestSpec.origin`."""
    session: str
    """As the client names it; empty if it does not."""


def is_open(path: str) -> bool:
    """Whether a path needs no key."""
    return path in OPEN or path.startswith(CONSOLE)


def is_admin(path: str) -> bool:
    """Whether a path needs the admin key."""
    return path.startswith(ADMIN) or path in PROFILES


def client_of(request: Request, user: str | None = None) -> Client:
    """The client that a request counts as."""
    key: Key | None = request.scope.get(_KEY)
    origin = key.name if key is not None else _address(request)
    session = request.headers.get(SESSION_HEADER, "")
    if key is not None and key.named:
        return Client(key.name, origin, session)
    own: str | None = request.scope.get(_NAME)
    name = name_of(_bearer_token(request)) if own is None else own
    return Client(user or name, origin, session)


def key_name(scope: Scope) -> str:
    """The name of the key that a request was admitted by; empty without one."""
    key: Key | None = scope.get(_KEY)
    return "" if key is None else key.name


def by_admin(request: Request) -> bool:
    """Whether a request to `/metrics` comes from a client that `/admin` would answer."""
    return bool(request.scope.get(_ADMIN))


def count_tokens(request: Request, tokens: Callable[[], int]) -> None:
    """Have the tokens of a request counted when it has ended, for its key's limit."""
    request.scope[_TOKENS] = tokens


@contextmanager
def going_on(request: Request, tokens: Callable[[], int]) -> Iterator[None]:
    """What goes on for a request beyond its end: it counts for its key instead of the request, and so do its
    tokens at last."""
    key: Key | None = request.scope.get(_KEY)
    counted: ExitStack = request.scope[_COUNTED]
    with counted.pop_all():
        yield
    if key is not None:
        key.usage.spend(tokens())


@contextmanager
def on_behalf_of(scope: Scope, keys: Keys, name: str) -> Iterator[None]:
    """What the server itself asks for a client, whose name `client_of` told; its tokens count for its key.

    That the key's limits let the request begin is for the caller to see to (`KeyUsage.request`). Raises
    ApiError 401 where that key is no longer valid.
    """
    key = keys.by_name(name)
    if keys and key is None:
        raise ApiError(401, "the key that this was asked with is no longer valid", code="invalid_api_key")
    scope[_KEY], scope[_NAME] = key, name
    try:
        yield
    finally:
        if key is not None and _TOKENS in scope:
            key.usage.spend(scope[_TOKENS]())


class AuthMiddleware:
    """Responds 401 without a right key, 403 where host, page or machine may not ask, 429 beyond a limit."""

    def __init__(self, app: ASGIApp, config: ServerConfig, api_keys: Keys) -> None:
        self._app = app
        self._api_keys, self._admin_keys = api_keys, Keys.for_admin(config)
        self._sites = Sites(config, keyless=not self._api_keys)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
        if scope["type"] != "http":
            return  # there are no WebSockets here
        request = Request(scope)
        with ExitStack() as counted:
            try:
                key = self._admitted(request)
                if key is not None and _counts(request):
                    counted.enter_context(await key.usage.admission())
            except ApiError as refusal:
                response = await respond_to_error(request, refusal)
                await response(scope, receive, send)
                return
            scope[_KEY], scope[_COUNTED] = key, counted
            if key is not None:
                logger.debug("%s %s with the key %r", request.method, request.scope["path"], key.name)
            try:
                await self._app(scope, receive, send)
            finally:
                if key is not None and _TOKENS in scope:
                    key.usage.spend(scope[_TOKENS]())

    def _admitted(self, request: Request) -> Key | None:
        """The key that a request is admitted by; None without one. Raises ApiError."""
        path = request.scope["path"]
        if path in HEALTH:
            return None
        if (refusal := self._sites.refusal(request.headers)) is not None:
            raise refusal
        if is_open(path):
            request.scope[_ADMIN] = path == METRICS and self._administers(request)
            return None
        self._api_keys.refresh()
        self._admin_keys.refresh()
        token, admin = _bearer_token(request), is_admin(path)
        if admin and self._admin_keys:
            return _found(self._admin_keys, token, "admin key", "invalid_admin_key")
        key = _found(self._api_keys, token, "API key", "invalid_api_key") if self._api_keys else None
        if admin and not _is_local(request):
            message = "without --admin-key, /admin answers only to clients on the server's own machine"
            raise ApiError(403, message, code="admin_forbidden")
        return key

    def _administers(self, request: Request) -> bool:
        if self._admin_keys:
            return self._admin_keys.find(_bearer_token(request)) is not None
        return _is_local(request)


def _counts(request: Request) -> bool:
    """Whether a request counts against the limits of its key.

    Other methods than POST only ask what there is. To cancel must be possible for a client whose key has
    reached a limit, such as by the batch that is to be cancelled.
    """
    return request.method == "POST" and not request.scope["path"].rstrip("/").endswith(CANCEL)


def _found(keys: Keys, token: bytes, what: str, code: str) -> Key:
    if (key := keys.find(token)) is not None:
        return key
    message = f"a valid {what} is required, as the header 'Authorization: Bearer KEY'"
    raise ApiError(401, message, code=code, headers={"WWW-Authenticate": "Bearer"})


def _bearer_token(request: Request) -> bytes:
    """The key that a client sends; Anthropic's clients have a header of their own for it."""
    scheme, _, token = request.headers.get("authorization", "").partition(" ")
    if scheme.lower() != "bearer":
        token = request.headers.get("x-api-key", "")
    return token.strip(" ").encode("latin-1")


def _address(request: Request) -> str:
    return request.client.host if request.client else ""


def _is_local(request: Request) -> bool:
    """The request comes from this machine, neither through a proxy nor from another site's web page."""
    headers = request.headers
    sender = _address(request)
    addressed, page = f"//{headers.get('host', '')}", headers.get("origin", "//localhost")
    forwarded = {"forwarded", "via", "x-forwarded-for", "x-real-ip"} & set(headers.keys())
    return not forwarded and is_loopback(sender) and all(names_loopback(url) for url in (addressed, page))
