"""uvicorn's server, without its handling of signals, with bounds on connections and on clients' time."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterator
from contextlib import contextmanager

import uvicorn
from starlette.applications import Starlette

from turnout.config import ServerConfig
from turnout.core.clock import monotonic
from turnout.server.http.connections.accepting import (
    AT_ONCE,
    Arriving,
    take_connections,
    usable_descriptors,
)
from turnout.server.http.connections.connection import ClientLimits, Connection
from turnout.server.http.connections.listening import Listener
from turnout.server.http.connections.waiting import WaitingConnections

__all__ = ["HttpServer"]

DRAIN_SECONDS = 3
"""How long clients have to read the rest of their responses, once the engine has nothing more to send."""
DISCARD_FACTOR = 8
"""How many times the largest body a client may send of one that has been refused."""
CHECK_SECONDS = 0.25
"""How often to look for clients that have taken too long."""


class HttpServer(uvicorn.Server):
    """Serves on `listener` until `should_exit` is set; `force_exit` also ends open connections."""

    def __init__(
        self,
        app: Starlette,
        listener: Listener,
        config: ServerConfig,
        client_limits: ClientLimits | None = None,
    ) -> None:
        super().__init__(
            uvicorn.Config(
                app,
                http=Connection,
                ws="none",
                lifespan="on",
                log_config=None,
                log_level="error",  # a warning for each malformed request would let clients fill the log
                access_log=False,
                timeout_keep_alive=config.keep_alive_timeout,
                timeout_graceful_shutdown=DRAIN_SECONDS,
            )
        )
        self._listener = listener
        self._client_limits = client_limits or ClientLimits(discarded=DISCARD_FACTOR * config.max_body_size)
        self._most_connections = config.max_connections
        self._shares_listener = config.api_workers > 1
        self._waiting = WaitingConnections(config.max_connections_per_address)
        self._taking: list[asyncio.Task[None]] = []
        self._tasks: list[asyncio.Task[None]] = []

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leave signals alone: `turnout.server.signals` handles them, since the engine has to stop too."""
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Accept connections with `take_connections`, which limits their number, rather than with uvicorn."""
        await super().startup(sockets=[])
        most = min(self._most_connections, usable_descriptors())
        open_connections, arriving = self.server_state.connections, Arriving()
        self._taking = [
            asyncio.create_task(
                take_connections(
                    each,
                    self._connection,
                    open_connections,
                    most,
                    self._waiting,
                    self._listener.certificates,
                    at_once=1 if self._shares_listener else AT_ONCE,  # the others take theirs
                    arriving=arriving,
                )
            )
            for each in self._listener.sockets
        ]
        self._tasks = [asyncio.create_task(self._check_connections())]
        if (certificates := self._listener.certificates) is not None:
            self._tasks.append(asyncio.create_task(certificates.keep_current()))

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        for task in self._taking:
            task.cancel()
        await asyncio.gather(*self._taking, return_exceptions=True)
        self._listener.close()
        try:
            await super().shutdown()
            if self.force_exit:  # uvicorn leaves the application as it is then; its files are to be closed
                await self.lifespan.shutdown()
        finally:
            for task in self._tasks:
                task.cancel()

    async def _check_connections(self) -> None:
        while True:
            await asyncio.sleep(CHECK_SECONDS)
            now = monotonic()
            for connection in list(self.server_state.connections):
                assert isinstance(connection, Connection)
                connection.check(now)

    def _connection(self) -> asyncio.Protocol:
        return Connection(
            self.config, self.server_state, self.lifespan.state, self._waiting, self._client_limits
        )
