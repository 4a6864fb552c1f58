"""uvicorn, less what is not its business here: signals, and which connections to take."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import uvicorn
from starlette.applications import Starlette

from turnout.server.http.connections import take_connections, usable_descriptors

__all__ = ["HttpServer"]

LAST_WORDS = 3
"""Seconds that clients have to take what is still for them, once the engine has nothing more to say."""


class HttpServer(uvicorn.Server):
    """Answers on `listener` until `should_exit` is set; `force_exit`: without waiting for anybody."""

    def __init__(self, app: Starlette, listener: socket.socket) -> None:
        super().__init__(
            uvicorn.Config(
                app,
                http="httptools",
                lifespan="off",
                log_config=None,
                log_level="warning",
                access_log=False,
                timeout_graceful_shutdown=LAST_WORDS,
            )
        )
        self._listener = listener
        self._taking: asyncio.Task[None] | None = None

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """The engine has to stop too."""
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """It listens to nothing by itself: `take_connections` knows when to stop."""
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
        """As uvicorn makes it, in `startup`."""
        make: Callable[..., asyncio.Protocol] = self.config.http_protocol_class
        return make(config=self.config, server_state=self.server_state, app_state=self.lifespan.state)
