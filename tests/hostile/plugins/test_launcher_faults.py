"""Launchers that give nonsense: the server says which launcher is at fault, and no request waits for ever."""

from __future__ import annotations

import asyncio
import re
import sys
import threading
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pytest

from turnout.config import EngineConfig, ServerConfig
from turnout.core.errors import EngineGone, PluginError, TurnoutError
from turnout.core.interfaces.launcher import Death, EngineAddress, EngineOrder, LaunchedEngine, Launcher
from turnout.core.registry.registry import Registry
from turnout.server.engine.client import ProcessClient
from turnout.server.engine.process import EngineProcess
from turnout.server.fleet.places import Places

SECONDS = 20.0


class Launched(LaunchedEngine):
    """An engine that never says anything."""

    def configure(self, config: str) -> None:
        pass

    def kill(self) -> None:
        pass


class WithoutInit(Launched):
    def __init__(self) -> None:
        pass


class Nonsense(Launcher):
    def __init__(self, launched: Callable[[], Any]) -> None:
        self._launched = launched

    def launch(self, order: EngineOrder) -> LaunchedEngine:
        engine: LaunchedEngine = self._launched()
        return engine


@pytest.mark.parametrize("given", [lambda: None, lambda: 7, object, WithoutInit])
def test_what_is_no_engine_is_refused_at_once(given: Callable[[], Any]) -> None:
    with pytest.raises(
        PluginError, match=r"launcher.*Nonsense.*: launch gave \w+; expected a LaunchedEngine"
    ):
        ProcessClient(launcher=Nonsense(given))


def _started(engine: Callable[[], Launched], then: Callable[[Launched], None]) -> None:
    """Starts a client, while `then` happens to its engine. Raises what it would tell its operator."""
    made: list[Launched] = []

    def launch() -> Launched:
        made.append(engine())
        return made[-1]

    async def main() -> None:
        client = ProcessClient(launcher=Nonsense(launch), restarts=0)
        client.configure(EngineConfig(model="none"))
        asyncio.get_running_loop().call_later(0.01, lambda: then(made[0]))
        try:
            async with asyncio.timeout(SECONDS):
                await client.start()
        finally:
            await client.close()

    asyncio.run(main())


DEATHS: list[Callable[[Future[Any]], object]] = [
    lambda death: death.set_result(None),
    lambda death: death.set_result("it died"),
    lambda death: death.set_exception(ValueError("no idea")),
    lambda death: death.cancel(),
]


@pytest.mark.parametrize("told", DEATHS, ids=["nothing", "a text", "an error", "cancelled"])
def test_an_end_that_is_told_badly_is_an_end(tmp_path: Path, told: Callable[[Future[Any]], object]) -> None:
    def engine() -> Launched:
        launched = Launched()
        launched.address.set_result(EngineAddress(f"ipc://{tmp_path}/s"))
        return launched

    with pytest.raises(EngineGone, match=r"the engine process ended, and .*Nonsense"):
        _started(engine, lambda launched: told(launched.death))


ADDRESSES: list[Callable[[Future[Any]], object]] = [
    lambda address: address.set_result(None),
    lambda address: address.set_result(7),
    lambda address: address.set_result(EngineAddress("no://such")),
    lambda address: address.set_result(EngineAddress("tcp://127.0.0.1:9", "keys")),  # type: ignore[arg-type]
    lambda address: address.set_exception(ValueError("nowhere")),
    lambda address: address.cancel(),
]


@pytest.mark.parametrize("told", ADDRESSES)
@pytest.mark.parametrize("late", [False, True], ids=["at once", "later"])
def test_an_engine_without_an_address_is_given_up(told: Callable[[Future[Any]], object], late: bool) -> None:
    def engine() -> Launched:
        launched = Launched()
        if not late:
            told(launched.address)
        return launched

    with pytest.raises((TurnoutError, OSError)) as raised:
        _started(engine, lambda launched: told(launched.address) if late else None)
    assert str(raised.value)


def test_a_death_that_is_told_twice_is_one(tmp_path: Path) -> None:
    """The channel tells of it, and then the launcher."""

    def engine() -> Launched:
        launched = Launched()
        launched.address.set_result(EngineAddress(f"ipc://{tmp_path}/s"))
        return launched

    def dies(launched: Launched) -> None:
        launched.death.set_result(Death("was killed", fault=False))

    with pytest.raises(EngineGone, match="was killed"):
        _started(engine, dies)


class Quitting(Nonsense):
    def expect(self, engines: int) -> None:
        sys.exit(3)

    def close(self) -> None:
        raise ValueError("it is not mine")


def test_a_launcher_that_fails_as_it_is_told_what_to_expect_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """`serve` ended with its exit code, and said nothing."""
    registry = Registry.load()
    monkeypatch.setattr(registry, "create", lambda *_, **__: Quitting(Launched))
    with pytest.raises(PluginError, match=r"launcher.*Quitting.*: expect failed: SystemExit: 3"):
        Places.of(registry, EngineConfig(model="none"), ServerConfig())


def test_a_launcher_that_fails_at_the_end_changes_nothing(caplog: pytest.LogCaptureFixture) -> None:
    """The server ended with a traceback."""
    Places(1, Quitting(Launched), None, ()).close()
    (record,) = caplog.records
    assert re.search(r"launcher.*Quitting.*: close failed: ValueError: it is not mine", record.message)


def test_an_engine_whose_end_is_not_waited_for_is_killed(tmp_path: Path) -> None:
    """A rollout that was paused then left a process that did not leave by itself."""
    killed = threading.Event()

    class Stuck(Launched):
        def kill(self) -> None:
            killed.set()

    async def main() -> None:
        stuck = Stuck()
        stuck.address.set_result(EngineAddress(f"ipc://{tmp_path}/s"))
        process = EngineProcess(Nonsense(lambda: stuck), EngineOrder("none", "info"))
        process.listen(lambda _: None, lambda _: None)
        stopping = asyncio.create_task(process.stop(SECONDS))
        await asyncio.sleep(0.05)
        stopping.cancel()
        with pytest.raises(asyncio.CancelledError):
            await stopping
        assert killed.is_set()

    asyncio.run(main())
