"""A worker whose engine ends at the moment in which a server comes or goes has one engine again."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from collections.abc import Awaitable, Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, cast

import msgspec
import psutil
import pytest

from turnout.config import EngineConfig
from turnout.core.errors import EngineGone
from turnout.core.interfaces.launcher import EngineOrder
from turnout.core.version import own_version
from turnout.server.engine.remote.messages import Hello, Kind
from turnout.server.worker import worker as worker_module
from turnout.server.worker.door import Door
from turnout.server.worker.worker import Worker


class Servers:
    """Stands in for the door, and for all that come to it."""

    def __init__(self) -> None:
        self.fd, self._bell = os.pipe()
        self.gone: set[bytes] = set()
        self.told: list[tuple[bytes, Kind]] = []
        self._says: list[tuple[bytes, bytes, bytes]] = []
        self._others = set(engines())

    def engines(self) -> list[psutil.Process]:
        """The processes of engines that have begun since."""
        return [each for each in engines() if each not in self._others]

    def greet(self, server: bytes, **changes: Any) -> None:
        hello = Hello(own_version(), json.dumps(changes) if changes else "")
        self._says.append((server, Kind.HELLO, msgspec.json.encode(hello)))
        os.write(self._bell, b"!")

    def leave(self, server: bytes) -> None:
        self._says.append((server, Kind.BYE, b""))
        os.write(self._bell, b"!")

    def messages(self) -> Iterator[tuple[bytes, bytes, bytes]]:
        while self._says:
            yield self._says.pop(0)

    def send(self, server: bytes, kind: bytes, content: bytes) -> bool:
        if server in self.gone:
            return False
        self.told.append((server, Kind(kind)))
        return True

    async def are_told(self, server: bytes, kind: Kind, times: int = 1) -> None:
        async with asyncio.timeout(20):
            while self.told.count((server, kind)) < times:
                await asyncio.sleep(0.01)


def engines() -> list[psutil.Process]:
    """The processes of engines of this one, in which servers of other tests may go on."""
    found = psutil.Process().children()
    return [each for each in found if "turnout.server.engine.main" in " ".join(each.cmdline())]


def play(
    folder: Path,
    monkeypatch: Any,
    story: Callable[[Servers], Awaitable[None]],
    factory: str = "echo_engine:build",
    servers: type[Servers] = Servers,
    **once: bool,
) -> None:
    monkeypatch.setattr(worker_module, "TICK_SECONDS", 60.0)  # so that only what is told notices who has left

    async def main() -> None:
        door = servers()
        order, config = EngineOrder(factory, "info"), EngineConfig(model=str(folder))
        running = asyncio.create_task(Worker(cast(Door, door), order, config, **once).run())
        try:
            await story(door)
        finally:
            running.cancel()
            with suppress(asyncio.CancelledError):
                await running

    asyncio.run(main())


def test_a_server_that_has_left_as_the_engine_dies(folder: Path, monkeypatch: Any) -> None:
    """The worker began to reset the engine that was gone, and never had another."""

    async def story(servers: Servers) -> None:
        servers.greet(b"one")
        await servers.are_told(b"one", Kind.EVENTS)
        servers.gone.add(b"one")
        os.kill(servers.engines()[0].pid, signal.SIGKILL)
        await asyncio.sleep(0.5)
        servers.greet(b"two")
        await servers.are_told(b"two", Kind.EVENTS)

    play(folder, monkeypatch, story)


def test_a_server_that_waits_for_another_engine_as_this_one_dies(
    folder: Path, monkeypatch: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """The engine that was gone was ended once more, with a traceback of ZeroMQ's."""

    async def story(servers: Servers) -> None:
        servers.greet(b"one")
        await servers.are_told(b"one", Kind.EVENTS)
        servers.greet(b"two", max_num_seqs=3)
        await servers.are_told(b"two", Kind.WAIT)
        os.kill(servers.engines()[0].pid, signal.SIGKILL)
        await servers.are_told(b"two", Kind.EVENTS)
        assert len(servers.engines()) == 1

    play(folder, monkeypatch, story)
    assert "Traceback" not in caplog.text


def test_a_worker_that_is_ended_without_an_engine(folder: Path, monkeypatch: Any) -> None:
    """It ended with a traceback of ZeroMQ's."""

    async def story(servers: Servers) -> None:
        for times in (1, 2):
            servers.greet(b"one")
            await servers.are_told(b"one", Kind.EVENTS, times)
            os.kill(servers.engines()[0].pid, signal.SIGKILL)
            await servers.are_told(b"one", Kind.DIED, times)
        assert not servers.engines(), "the next one waits"

    play(folder, monkeypatch, story)


def test_a_worker_for_one_server_ends_as_both_are_gone(folder: Path, monkeypatch: Any) -> None:
    async def story(servers: Servers) -> None:
        servers.greet(b"one")
        await servers.are_told(b"one", Kind.EVENTS)
        servers.gone.add(b"one")
        os.kill(servers.engines()[0].pid, signal.SIGKILL)
        async with asyncio.timeout(20):
            while len(asyncio.all_tasks()) > 1:
                await asyncio.sleep(0.01)

    play(folder, monkeypatch, story, once=True)


def test_a_worker_whose_engine_cannot_be_built_says_so(folder: Path, monkeypatch: Any) -> None:
    async def story(servers: Servers) -> None:
        async with asyncio.timeout(20):
            while len(asyncio.all_tasks()) > 1:
                await asyncio.sleep(0.01)

    with pytest.raises(EngineGone):
        play(folder, monkeypatch, story, "echo_engine:nothing_of_this_name")


def test_a_server_that_leaves_as_its_changes_are_refused(folder: Path, monkeypatch: Any) -> None:
    """The next one in line was let in, and then forgotten: it waited for the engine for ever."""

    class Leaving(Servers):
        def send(self, server: bytes, kind: bytes, content: bytes) -> bool:
            return (server, kind) != (b"two", Kind.DIED) and super().send(server, kind, content)

    async def story(servers: Servers) -> None:
        servers.greet(b"one")
        await servers.are_told(b"one", Kind.EVENTS)
        servers.greet(b"two", no_such_option=3)
        await servers.are_told(b"two", Kind.WAIT)
        servers.greet(b"three")
        await servers.are_told(b"three", Kind.WAIT)
        servers.leave(b"one")
        await servers.are_told(b"three", Kind.EVENTS)

    play(folder, monkeypatch, story, servers=Leaving)
