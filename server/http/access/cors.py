"""Lets pages of other origins read responses (CORS)."""

from __future__ import annotations

from collections.abc import Sequence

from starlette.datastructures import Headers
from starlette.middleware.cors import CORSMiddleware
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from turnout.config import ServerConfig
from turnout.server.http.access.auth import is_admin
from turnout.server.http.access.sites import is_local_page
from turnout.server.http.errors import ApiError, error_body
from turnout.server.http.json_response import JsonResponse

__all__ = ["PagesMiddleware"]


class PagesMiddleware:
    """Adds the headers of CORS for pages of allowed origins, and without a key for those of this machine.

    The latter may read everything but `/admin`: it tells of other clients.
    """

    def __init__(self, app: ASGIApp, config: ServerConfig, exposed: Sequence[str], *, keyless: bool) -> None:
        """exposed: headers of responses that pages may read. `keyless`: clients need no key."""
        self._listed = _Cors(app, config.allowed_origins, exposed, local=False)
        self._pages = _Cors(app, config.allowed_origins, exposed, local=keyless)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        admin = scope["type"] == "http" and is_admin(scope["path"])
        await (self._listed if admin else self._pages)(scope, receive, send)


class _Cors(CORSMiddleware):
    """Starlette's, with refusals in JSON."""

    def __init__(self, app: ASGIApp, origins: Sequence[str], exposed: Sequence[str], *, local: bool) -> None:
        """`local`: pages of this machine may read, too."""
        super().__init__(
            app,
            allow_origins=origins,
            allow_methods=["*"],
            allow_headers=["*"],
            expose_headers=exposed,
            allow_private_network=True,  # browsers ask for it where a public page calls a local server
        )
        self._local = local

    def is_allowed_origin(self, origin: str) -> bool:
        return super().is_allowed_origin(origin) or (self._local and is_local_page(origin))

    def preflight_response(self, request_headers: Headers) -> Response:
        response = super().preflight_response(request_headers)
        if response.status_code < 400:
            return response
        origin, method = request_headers["origin"], request_headers["access-control-request-method"]
        if self.is_allowed_origin(origin):
            refusal = ApiError(400, f"there is no method {method!r} here")
        else:
            message = f"pages of {origin!r} may not read this; let them with --allowed-origins"
            refusal = ApiError(403, message, code="origin_not_allowed")
        headers = {"Vary": response.headers["Vary"]}
        return JsonResponse(error_body(refusal), status_code=refusal.status, headers=headers)
