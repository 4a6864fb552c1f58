"""The admin commands that an engine has not answered yet."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from turnout.core.errors import EngineGone
from turnout.core.types.messages import AdminCommand, Reply

__all__ = ["ADMIN_TIMEOUT_SECONDS", "Replies"]

ADMIN_TIMEOUT_SECONDS = 30.0
"""How long an admin command may wait for the step to end."""


class Replies:
    """What comes back, and whose it is."""

    def __init__(self) -> None:
        self._awaited: dict[str, asyncio.Future[Reply]] = {}
        """By the command's id."""

    def __len__(self) -> int:
        return len(self._awaited)

    async def to(self, command: AdminCommand, send: Callable[[AdminCommand], None]) -> Reply:
        """Send a command, and return the reply. Raises TimeoutError, and EngineGone after `fail`."""
        reply: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()
        self._awaited[command.id] = reply
        send(command)
        try:
            async with asyncio.timeout(ADMIN_TIMEOUT_SECONDS):
                return await reply
        finally:
            del self._awaited[command.id]

    def take(self, reply: Reply) -> None:
        """Hand a reply to who sent the command, unless that one has given up waiting."""
        if (awaited := self._awaited.get(reply.id)) is not None and not awaited.done():
            awaited.set_result(reply)

    def fail(self, reason: str) -> None:
        """End all that is awaited, because the engine is gone."""
        for awaited in self._awaited.values():
            if not awaited.done():
                awaited.set_exception(EngineGone(reason))
