"""The admin commands that an engine has not answered yet."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from turnout.core.errors import EngineGone
from turnout.core.types.messages import AdminCommand, Reply
from turnout.server.engine.admin_journal import lasts

__all__ = ["ADMIN_TIMEOUT_SECONDS", "Replies"]

logger = logging.getLogger(__name__)

ADMIN_TIMEOUT_SECONDS = 30.0
"""How long an admin command may wait for the step to end."""


class Replies:
    """What comes back, and whose it is."""

    def __init__(self, note: Callable[[AdminCommand], None]) -> None:
        """`note`: told of each command that was carried out, however late."""
        self._note = note
        self._awaited: dict[str, asyncio.Future[Reply]] = {}
        """By the command's id."""
        self._given_up: dict[str, AdminCommand] = {}
        """Those that nothing waits for, and that may still change the engine."""

    def __len__(self) -> int:
        return len(self._awaited)

    async def to(self, command: AdminCommand, send: Callable[[AdminCommand], None]) -> Reply:
        """Send a command, and return the reply. Raises TimeoutError, and EngineGone after `fail`."""
        reply: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()
        self._awaited[command.id] = reply
        send(command)
        try:
            async with asyncio.timeout(ADMIN_TIMEOUT_SECONDS):
                answer = await reply
        except (TimeoutError, asyncio.CancelledError):
            if lasts(command):
                self._given_up[command.id] = command
            raise
        finally:
            del self._awaited[command.id]
        if not answer.error_kind:
            self._note(command)
        return answer

    def take(self, reply: Reply) -> None:
        """Hand a reply to who sent the command. An error that nothing waits for is logged: of a command that
        was given up, or that an engine which starts anew was to repeat."""
        given_up = self._given_up.pop(reply.id, None)
        if (awaited := self._awaited.get(reply.id)) is not None and not awaited.done():
            awaited.set_result(reply)
        elif reply.error_kind:
            logger.error("the engine did not carry out what was commanded before: %s", reply.error)
        elif given_up is not None:
            self._note(given_up)

    def fail(self, reason: str) -> None:
        """End all that is awaited, because the engine is gone."""
        self._given_up.clear()
        for awaited in self._awaited.values():
            if not awaited.done():
                awaited.set_exception(EngineGone(reason))
