"""The server between the moment its engine's process has been started and its exit."""

from __future__ import annotations

import asyncio
import signal
import socket
import sys
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from typing import Any

import uvicorn

from turnout.core.config import ServerConfig
from turnout.core.garbage import steady
from turnout.server.app import create_app
from turnout.server.engine_client import EngineGone, ProcessClient
from turnout.text.tokenizer import Tokenizer

__all__ = ["run"]

DRAIN = 3
"""Seconds that clients have to take what is still for them."""


async def run(
    listener: socket.socket, client: ProcessClient, tokenizer: Tokenizer, config: ServerConfig
) -> None:
    """Serve until asked to stop.

    Raises what `ProcessClient.start` does, and EngineError when the engine dies.
    """
    stop = _Stop(client)
    try:
        await _first_of(client.start(), stop.wait())
        if not stop.is_set():
            server = _Server(_uvicorn_config(client, tokenizer, config))
            _announce(client, config, listener)
            with steady():
                await _serve(server, listener, client, stop)
    finally:
        await client.close()


async def _serve(server: _Server, listener: socket.socket, client: ProcessClient, stop: _Stop) -> None:
    stop.server = server
    serving = asyncio.create_task(server.serve([listener]))
    await _first_of(asyncio.wait({serving}), stop.wait(), client.gone())
    failure = client.failure
    client.refuse("the server is shutting down")
    server.should_exit = True
    await serving
    if failure is not None and not stop.is_set():
        raise EngineGone(failure)


def _announce(client: ProcessClient, config: ServerConfig, listener: socket.socket) -> None:
    name = config.served_model_name or client.ready.model
    host = f"[{config.host}]" if ":" in config.host else config.host
    url = f"http://{host}:{listener.getsockname()[1]}"
    sys.stdout.write("\n".join([*client.ready.summary, f"Turnout serving {name} at {url}", ""]))
    sys.stdout.flush()


def _uvicorn_config(client: ProcessClient, tokenizer: Tokenizer, config: ServerConfig) -> uvicorn.Config:
    return uvicorn.Config(
        create_app(client, tokenizer, config),
        lifespan="off",
        log_config=None,
        log_level="warning",
        access_log=False,
        timeout_graceful_shutdown=DRAIN,
    )


class _Server(uvicorn.Server):
    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Not uvicorn's business here: the engine has to stop too."""
        yield


class _Stop:
    """Ctrl-C and SIGTERM: the first asks, a second insists."""

    def __init__(self, client: ProcessClient) -> None:
        self.server: _Server | None = None
        self._client = client
        self._asked = asyncio.Event()
        for number in (signal.SIGINT, signal.SIGTERM):
            asyncio.get_running_loop().add_signal_handler(number, self._signalled)

    def is_set(self) -> bool:
        return self._asked.is_set()

    async def wait(self) -> None:
        await self._asked.wait()

    def _signalled(self) -> None:
        if self.is_set():
            self._client.kill()
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
