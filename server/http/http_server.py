"""uvicorn's server, without its handling of signals and with a limit on connections."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import uvicorn
from starlette.applications import Starlette

from turnout.server.http.connections import take_connections, usable_descriptors

__all__ = ["HttpServer"]

DRAIN_SECONDS = 3
"""How long clients have to read the rest of their responses, once the engine has nothing more to send."""


class HttpServer(uvicorn.Server):
    """Serves on `listener` until `should_exit` is set; `force_exit` also ends open connections."""

    def __init__(self, app: Starlette, listener: socket.socket) -> None:
        super().__init__(
            uvicorn.Config(
                app,
                http="httptools",
                lifespan="off",
                log_config=None,
                log_level="warning",
                access_log=False,
                timeout_graceful_shutdown=DRAIN_SECONDS,
            )
        )
        self._listener = listener
        self._taking: asyncio.Task[None] | None = None

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leave signals alone: `turnout.server.signals` handles them, since the engine has to stop too."""
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Accept connections with `take_connections`, which limits their number, rather than with uvicorn."""
        await super().startup(sockets=[])
        connections, most = self.server_state.connections, usable_descriptors()
        self._taking = asyncio.create_task(
            take_connections(self._listener, self._protocol, connections, most)
        )

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        if self._taking is not None:
            self._taking.cancel()
            await asyncio.gather(self._taking, return_exceptions=True)
        self._listener.close()
        await super().shutdown()

    def _protocol(self) -> asyncio.Protocol:
        """A connection's protocol, made as uvicorn's own `startup` makes it."""
        make: Callable[..., asyncio.Protocol] = self.config.http_protocol_class
        return make(config=self.config, server_state=self.server_state, app_state=self.lifespan.state)
