"""Every answer of an A/B test says which arm gave it."""

from __future__ import annotations

from urllib.parse import quote

from starlette.datastructures import MutableHeaders
from starlette.requests import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

__all__ = ["ARM_HEADER", "ArmHeader", "answered_by"]

ARM_HEADER = "X-Turnout-Arm"
_KEY = "turnout.arm"


def answered_by(request: Request, arm: str) -> None:
    """To be called before anything is answered."""
    request.scope[_KEY] = arm


class ArmHeader:
    """Middleware: adds the header, to streams and errors too. What is not ASCII is percent-encoded."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def tell(message: Message) -> None:
            if message["type"] == "http.response.start" and (arm := scope.get(_KEY)):
                MutableHeaders(scope=message)[ARM_HEADER] = quote(arm)
            await send(message)

        await self._app(scope, receive, tell)
