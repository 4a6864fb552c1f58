"""A server in a thread, with a real socket and a real engine process."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import httpx

from turnout.config import EngineConfig, ServerConfig
from turnout.core.logs import LogStyle
from turnout.core.registry.registry import Registry
from turnout.lab.ab.blocks import BlockSize
from turnout.lab.ab.live_trial import LiveTrial
from turnout.server.api.metrics import summed_figures
from turnout.server.app import create_app
from turnout.server.engine.client import ProcessClient
from turnout.server.fleet.arms import Arms, ServedArm
from turnout.server.fleet.fleet import Fleet
from turnout.server.fleet.fronts.fronts import Fronts
from turnout.server.fleet.models.models import Models
from turnout.server.fleet.places import Places
from turnout.server.fleet.replica import ReplicaOrder
from turnout.server.http.connections.connection import ClientLimits
from turnout.server.http.connections.http_server import HttpServer
from turnout.server.http.connections.listening import listening
from turnout.server.lifecycle import http_server
from turnout.text.tokenizer import Tokenizer

FACTORY = "echo_engine:build"


class RunningServer:
    """A server in a thread, and a look behind its API."""

    def __init__(self, arms: Arms, loop: asyncio.AbstractEventLoop, url: str) -> None:
        self.arms = arms
        self.fleet: Fleet = arms.first.client
        self.client: ProcessClient = self.fleet.replicas[0].client
        self.loop = loop
        self.url = url
        self.fronts: Fronts | None = None
        path = url.removeprefix("unix:")
        if path != url:
            self.http = httpx.Client(
                transport=httpx.HTTPTransport(uds=path), base_url="http://localhost", timeout=20
            )
        else:
            self.http = httpx.Client(base_url=url, timeout=20)

    def post(self, path: str, **body: object) -> httpx.Response:
        return self.http.post(path, json=body)

    def work(self) -> int:
        """Requests in the engine."""
        stats = self.client.stats
        return 0 if stats is None else stats.running + stats.waiting


Start = Callable[..., RunningServer]


@dataclass(frozen=True)
class Other:
    """A second arm beside the first, which is then called ``base``."""

    name: str = "long"
    share: float = 0.5
    engine: dict[str, object] = field(default_factory=dict)
    block: BlockSize = field(default_factory=BlockSize)


def arms_of(fleets: list[Fleet], tokenizer: Tokenizer, engine: EngineConfig, other: Other | None) -> Arms:
    if other is None:
        return Arms.of_one(fleets[0], tokenizer)
    changed = engine.model_copy(update=other.engine)
    changes = {name: str(value) for name, value in other.engine.items()}
    base = ServedArm(fleets[0], tokenizer, "base", engine, {}, 1 - other.share)
    arm = ServedArm(fleets[1], tokenizer, other.name, changed, changes, other.share)
    return Arms([base, arm], LiveTrial("base", other.name, size=other.block))


@contextmanager
def running(
    tokenizer: Tokenizer,
    engine: EngineConfig,
    config: ServerConfig,
    factory: str = FACTORY,
    other: Other | None = None,
    client_limits: ClientLimits | None = None,
    folder: Path | None = None,
) -> Iterator[RunningServer]:
    """folder: of the tokenizer, for a server of several processes."""
    started, stop = threading.Event(), asyncio.Event()
    servers: list[RunningServer] = []

    async def main() -> None:
        registry = Registry.of(engine)
        places = Places.of(registry, engine, config)

        def launch(order: ReplicaOrder) -> ProcessClient:
            return ProcessClient(
                factory=factory,
                log=LogStyle("critical"),
                restarts=config.engine_restarts,
                replica=order.name,
                journal=order.journal,
                launcher=places.launcher_at(order.place.worker),
                place=order.place,
            )

        router = registry.create("router", config.router)
        fleets = [
            Fleet(
                launch,
                places.here,
                router,
                sharing=places.sharing,
                workers=places.addresses,
                event_interval=config.event_interval,
            )
            for _ in range(2 if other else 1)
        ]
        arms = arms_of(fleets, tokenizer, engine, other)
        for fleet, arm in zip(fleets, arms.all, strict=True):
            fleet.configure(arm.config if other else engine)
            await fleet.start()
        models = Models.of_one(arms, config.model_name, config.model_aliases)
        watching = asyncio.create_task(models.gone())
        with listening(config.model_copy(update={"port": 0})) as listener:
            fronts = None
            if config.api_workers == 1:
                server = HttpServer(create_app(models, config), listener, config, client_limits)
            else:
                assert folder is not None and client_limits is None
                fronts = Fronts(
                    fleets[0], listener, folder, config.model_name, engine, config, summed_figures
                )
                server = http_server(listener, models, config, fronts)
            servers.append(RunningServer(arms, asyncio.get_running_loop(), listener.url))
            serving = asyncio.create_task(server.serve())
            if fronts is not None:
                servers[0].fronts = fronts
                await fronts.start()
            started.set()
            await stop.wait()
            if fronts is not None:
                await fronts.stop()
                await fronts.close()
            server.should_exit = True
            await serving
        watching.cancel()
        await arms.close()

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
