"""Asking the engine, for the handlers under ``/admin``: a value of the expected kind, or a client's error."""

from __future__ import annotations

from typing import TypeVar

from turnout.core.engine.client import EngineClient
from turnout.core.types.messages import AdminCommand, Reply
from turnout.server.http.errors import ApiError

__all__ = ["ask", "tell"]

STATUS = {"invalid": 400, "missing": 404, "unsupported": 409}
CODES = {"missing": "prefix_not_found", "unsupported": "prefixes_unsupported"}

Value = TypeVar("Value")


async def ask(client: EngineClient, command: AdminCommand, kind: type[Value]) -> Value:
    """Have a command carried out that is answered with such a value. Raises as `tell` does."""
    reply = await tell(client, command)
    assert isinstance(reply.value, kind), f"{type(command).__name__} was answered with {reply.value!r}"
    return reply.value


async def tell(client: EngineClient, command: AdminCommand) -> Reply:
    """Raises ApiError for what the engine refuses or does not answer in time, EngineGone when it is gone."""
    try:
        reply = await client.admin(command)
    except TimeoutError:
        message = "the engine is busy with a long step; what was asked for may still come into effect"
        raise ApiError(504, message, code="engine_busy") from None
    if reply.error_kind:
        status, code = STATUS.get(reply.error_kind, 500), CODES.get(reply.error_kind)
        raise ApiError(status, reply.error, code=code)
    return reply
