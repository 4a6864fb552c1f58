"""Sends admin commands to an engine, for the handlers of ``/admin``; its refusals become HTTP errors."""

from __future__ import annotations

from typing import Protocol, TypeVar

from turnout.core.types.messages import AdminCommand, Reply
from turnout.server.http.errors import ApiError

__all__ = ["CommandTaker", "fetch", "send"]

STATUS = {"invalid": 400, "missing": 404, "unsupported": 409, "conflict": 409}
CODES = {
    "missing": "prefix_not_found",
    "unsupported": "prefixes_unsupported",
    "conflict": "profile_conflict",
}

Value = TypeVar("Value")


class CommandTaker(Protocol):
    """An engine, or several that are told the same."""

    async def admin(self, command: AdminCommand) -> Reply:
        """As `EngineClient.admin` says."""
        ...


async def fetch(client: CommandTaker, command: AdminCommand, kind: type[Value]) -> Value:
    """Send a command whose reply holds a value of `kind`, and return it. Raises what `send` raises."""
    reply = await send(client, command)
    assert isinstance(reply.value, kind), f"{type(command).__name__} was answered with {reply.value!r}"
    return reply.value


async def send(client: CommandTaker, command: AdminCommand) -> Reply:
    """Have a command carried out.

    Raises ApiError where the engine refuses it or does not answer in time, EngineGone when the engine is
    gone.
    """
    try:
        reply = await client.admin(command)
    except TimeoutError:
        message = "the engine is busy with a long step; the command may still come into effect"
        raise ApiError(504, message, code="engine_busy") from None
    if reply.error_kind:
        status, code = STATUS.get(reply.error_kind, 500), CODES.get(reply.error_kind)
        raise ApiError(status, reply.error, code=code)
    return reply
