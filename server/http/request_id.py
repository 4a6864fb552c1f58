"""Names each request: by the client's ``X-Request-Id``, or by a name of the server's own.

The response carries the name, and so does every line that the server's process logs about the request. It
also says how long it took to begin.
"""

from __future__ import annotations

import re
import uuid

from starlette.datastructures import MutableHeaders
from starlette.requests import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from turnout.core import limits
from turnout.core.clock import monotonic
from turnout.core.logs import current_request
from turnout.server.http.errors import REQUEST_ID, REQUEST_KEY, ApiError, respond_to_error

__all__ = ["PROCESSING", "RequestIdMiddleware"]

PROCESSING = "openai-processing-ms"
_PRINTABLE = re.compile(rf"[\x20-\x7e]{{1,{limits.REQUEST_ID.whole}}}")


class RequestIdMiddleware:
    """Adds `X-Request-Id` to every response, also to streams and errors; refuses an invalid one with 400."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        request = Request(scope)
        given = request.headers.get(REQUEST_ID)
        refused = given is not None and _PRINTABLE.fullmatch(given) is None
        id = uuid.uuid4().hex if given is None or refused else given
        scope[REQUEST_KEY] = id
        current_request.set(id)  # the server has a task, and so a context, for each request

        begun = monotonic()

        async def send_named(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                headers[REQUEST_ID] = id
                headers[PROCESSING] = str(round(1000 * (monotonic() - begun)))
            await send(message)

        if refused:
            response = await respond_to_error(request, _refusal())
            await response(scope, receive, send_named)
        else:
            await self._app(scope, receive, send_named)


def _refusal() -> ApiError:
    most = limits.REQUEST_ID.whole
    message = f"the header {REQUEST_ID} must have 1 to {most} printable characters of ASCII"
    return ApiError(400, message, param="x-request-id")
