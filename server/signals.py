"""Handles Ctrl-C, SIGTERM and SIGHUP: the first one asks the server to stop, the next ends it at once."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Sequence

from turnout.core.process import stop_signals
from turnout.server.engine.client import SHUTTING_DOWN
from turnout.server.fleet.fleet import Fleet
from turnout.server.http.connections.http_server import HttpServer

__all__ = ["Signals"]


class Signals:
    """Handles the signals in the running event loop, from its construction on."""

    def __init__(self, fleets: Sequence[Fleet]) -> None:
        self.server: HttpServer | None = None
        """The HTTP server to stop, once there is one."""
        self._fleets = fleets
        self._stop = asyncio.Event()
        for number in stop_signals():
            asyncio.get_running_loop().add_signal_handler(number, self._signalled, number)

    @property
    def stopping(self) -> bool:
        """A signal has come."""
        return self._stop.is_set()

    async def wait(self) -> None:
        """Wait for a signal."""
        await self._stop.wait()

    def _signalled(self, number: signal.Signals) -> None:
        # The end of a terminal may come twice: from the system, and from the shell.
        if self.stopping and number != signal.SIGHUP:
            self._end_now()
        self._stop.set()

    def _end_now(self) -> None:
        """End all requests and the engines at once, and wait for no client here; fronts pass the end on."""
        for fleet in self._fleets:
            fleet.refuse(SHUTTING_DOWN)
            fleet.kill()
        if self.server is not None:
            self.server.force_exit = True
