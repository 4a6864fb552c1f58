"""A server in a thread, with a real socket and a real engine process."""

from __future__ import annotations

import asyncio
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import httpx
import uvicorn

from turnout.core.config import EngineConfig, ServerConfig
from turnout.server.app import create_app
from turnout.server.engine_client import ProcessClient
from turnout.text.tokenizer import Tokenizer

FACTORY = "parrot:build"


class RunningServer:
    """A server in a thread, and a look behind its API."""

    def __init__(self, client: ProcessClient, loop: asyncio.AbstractEventLoop, url: str) -> None:
        self.client = client
        self.loop = loop
        self.url = url
        self.http = httpx.Client(base_url=url, timeout=20)

    def post(self, path: str, **body: object) -> httpx.Response:
        return self.http.post(path, json=body)

    def work(self) -> int:
        """Requests in the engine."""
        stats = self.client.stats
        return 0 if stats is None else stats.running + stats.waiting


Start = Callable[..., RunningServer]


@contextmanager
def running(
    tokenizer: Tokenizer, engine: EngineConfig, config: ServerConfig, factory: str = FACTORY
) -> Iterator[RunningServer]:
    listener = socket.create_server(("127.0.0.1", 0))
    started, stop = threading.Event(), asyncio.Event()
    servers: list[RunningServer] = []

    async def main() -> None:
        client = ProcessClient(factory=factory, log_level="critical", restarts=config.engine_restarts)
        client.configure(engine)
        await client.start()
        app = create_app(client, tokenizer, config)
        server = uvicorn.Server(
            uvicorn.Config(app, lifespan="off", log_config=None, timeout_graceful_shutdown=1)
        )
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        servers.append(RunningServer(client, asyncio.get_running_loop(), url))
        started.set()
        serving = asyncio.create_task(server.serve([listener]))
        await stop.wait()
        server.should_exit = True
        await serving
        await client.close()

    thread = threading.Thread(target=asyncio.run, args=(main(),))
    thread.start()
    assert started.wait(60)
    (server,) = servers
    try:
        yield server
    finally:
        server.http.close()
        server.loop.call_soon_threadsafe(stop.set)
        thread.join(20)
        assert not thread.is_alive()


def eventually(condition: Callable[[], object], seconds: float = 5) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it never happened"
        time.sleep(0.01)
