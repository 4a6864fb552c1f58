"""Adds a header to every response of an A/B test that says which arm gave it."""

from __future__ import annotations

from urllib.parse import quote

from starlette.datastructures import MutableHeaders
from starlette.requests import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

__all__ = ["ARM_HEADER", "ArmHeaderMiddleware", "mark_arm"]

ARM_HEADER = "X-Turnout-Arm"
_KEY = "turnout.arm"


def mark_arm(request: Request, arm: str) -> None:
    """Note which arm serves a request; to be called before the response starts."""
    request.scope[_KEY] = arm


class ArmHeaderMiddleware:
    """Adds the header, to streams and errors too. Characters beyond ASCII are percent-encoded."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def send_marked(message: Message) -> None:
            if message["type"] == "http.response.start" and (arm := scope.get(_KEY)):
                MutableHeaders(scope=message)[ARM_HEADER] = quote(arm)
            await send(message)

        await self._app(scope, receive, send_marked)
