"""The server between the moment its engines' processes have been started and its exit."""

from __future__ import annotations

import asyncio
import signal
import socket
import sys
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import uvicorn

from turnout.core.config import ServerConfig
from turnout.core.errors import ConfigError, EngineError
from turnout.core.garbage import steady
from turnout.server.ab_test import check_memory, check_ready
from turnout.server.app import create_app
from turnout.server.arms import Arms
from turnout.server.connections import take_connections, usable_descriptors
from turnout.server.engine_client import EngineGone, ProcessClient

__all__ = ["run"]

DRAIN = 3
"""Seconds that clients have to take what is still for them."""


async def run(
    listener: socket.socket, clients: Sequence[ProcessClient], arms: Arms, config: ServerConfig
) -> None:
    """Serve until asked to stop. `clients`: those of the arms; the first has been configured.

    Raises EngineError when an engine cannot be assembled, or none is left; ConfigError where an engine finds
    its configuration wrong, or two do not go together.
    """
    stop = _Stop(clients)
    try:
        await _first_of(_start(clients, arms), stop.wait())
        if not stop.is_set():
            server = _Server(_uvicorn_config(arms, config), listener)
            _announce(arms, config, listener)
            with steady():
                await _serve(server, clients, arms, stop)
    finally:
        await arms.close()


async def _start(clients: Sequence[ProcessClient], arms: Arms) -> None:
    """One after the other: each sees what memory the one before has taken."""
    for client, arm in zip(clients, arms.all, strict=True):
        if arm is not arms.first:
            client.configure(arm.config)
        try:
            await client.start()
        except EngineError as error:
            if arms.trial is None:
                raise
            raise EngineGone(f"arm {arm.name!r}: {error}") from None
        except ConfigError as error:
            raise error if arms.trial is None else ConfigError(f"arm {arm.name!r}: {error}") from None
    check_ready(arms.all)


async def _serve(server: _Server, clients: Sequence[ProcessClient], arms: Arms, stop: _Stop) -> None:
    stop.server = server
    serving = asyncio.create_task(server.serve())
    await _first_of(asyncio.wait({serving}), stop.wait(), arms.gone())
    failure = arms.failure
    for client in clients:
        client.refuse("the server is shutting down")
    server.should_exit = True
    await serving
    if failure is not None and not stop.is_set():
        raise EngineGone(failure)


def _announce(arms: Arms, config: ServerConfig, listener: socket.socket) -> None:
    name = config.served_model_name or arms.first.client.ready.model
    host = f"[{config.host}]" if ":" in config.host else config.host
    url = f"http://{host}:{listener.getsockname()[1]}"
    sys.stdout.write("\n".join([*_summary(arms), f"Turnout serving {name} at {url}", ""]))
    sys.stdout.flush()


def _summary(arms: Arms) -> Iterator[str]:
    """Raises ConfigError where the sums are impossible."""
    if arms.trial is None:
        yield from arms.first.client.ready.summary
        return
    for arm in arms.all:
        yield f"arm {arm.name}: {100 * arm.share:.3g}% of the sessions{_changes(arm.changes)}"
        yield from (f"  {line}" for line in arm.client.ready.summary)
    yield check_memory(arms.all)


def _changes(changes: Mapping[str, str]) -> str:
    return "".join(f", {field}={value or 'default'}" for field, value in changes.items())


def _uvicorn_config(arms: Arms, config: ServerConfig) -> uvicorn.Config:
    return uvicorn.Config(
        create_app(arms, config),
        http="httptools",
        lifespan="off",
        log_config=None,
        log_level="warning",
        access_log=False,
        timeout_graceful_shutdown=DRAIN,
    )


class _Server(uvicorn.Server):
    """uvicorn's, less what is not its business here."""

    def __init__(self, config: uvicorn.Config, listener: socket.socket) -> None:
        super().__init__(config)
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


class _Stop:
    """Ctrl-C and SIGTERM: the first asks, a second insists."""

    def __init__(self, clients: Sequence[ProcessClient]) -> None:
        self.server: _Server | None = None
        self._clients = clients
        self._asked = asyncio.Event()
        for number in (signal.SIGINT, signal.SIGTERM):
            asyncio.get_running_loop().add_signal_handler(number, self._signalled)

    def is_set(self) -> bool:
        return self._asked.is_set()

    async def wait(self) -> None:
        await self._asked.wait()

    def _signalled(self) -> None:
        if self.is_set():
            for client in self._clients:
                client.kill()
            if self.server is not None:
                self.server.force_exit = True
        self._asked.set()


async def _first_of(*works: Coroutine[Any, Any, object]) -> None:
    """Until one of them is done; the others are cancelled. Raises what it raised."""
    tasks = [asyncio.ensure_future(work) for work in works]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
