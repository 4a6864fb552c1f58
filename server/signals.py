"""Ctrl-C and SIGTERM: the first asks, another insists."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Sequence

from turnout.server.engine.client import ProcessClient
from turnout.server.http.http_server import HttpServer

__all__ = ["Signals"]


class Signals:
    """Takes them over from where it is made on, in the event loop."""

    def __init__(self, clients: Sequence[ProcessClient]) -> None:
        self.server: HttpServer | None = None
        """Whom to tell, once there is one."""
        self._clients = clients
        self._asked = asyncio.Event()
        for number in (signal.SIGINT, signal.SIGTERM):
            asyncio.get_running_loop().add_signal_handler(number, self._signalled)

    @property
    def asked(self) -> bool:
        return self._asked.is_set()

    async def wait(self) -> None:
        """Until asked to stop."""
        await self._asked.wait()

    def _signalled(self) -> None:
        if self.asked:
            self._insist()
        self._asked.set()

    def _insist(self) -> None:
        """Nobody is waited for any more, whatever is being waited for."""
        for client in self._clients:
            client.refuse("the server is shutting down")
            client.kill()
        if self.server is not None:
            self.server.force_exit = True
