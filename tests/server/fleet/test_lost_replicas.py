"""Replicas that end, fail or do not start while others are replaced: none is lost, left or forgotten."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest

from turnout.config import EngineConfig
from turnout.core.errors import EngineGone, PluginError
from turnout.core.logs import LogStyle
from turnout.core.types.messages import ShowScheduler
from turnout.core.types.request import RequestSpec
from turnout.core.types.sampling_params import SamplingParams
from turnout.server.engine.client import ProcessClient
from turnout.server.engine.process import EngineProcess
from turnout.server.fleet.fleet import Fleet, FleetError
from turnout.server.fleet.replica import ReplicaOrder

CONFIG = EngineConfig(model="echo")


class Launching:
    """Starts engines; from the order of a number on, the system has no room for another."""

    def __init__(self) -> None:
        self.orders: list[ReplicaOrder] = []
        self.clients: list[ProcessClient] = []
        self.full_from: int | None = None
        self.factory = "echo_engine:build"

    def __call__(self, order: ReplicaOrder) -> ProcessClient:
        self.orders.append(order)
        if self.full_from is not None and len(self.orders) > self.full_from:
            raise OSError("no room for a process")
        client = ProcessClient(
            factory=self.factory, log=LogStyle("critical"), replica=order.name, journal=order.journal
        )
        self.clients.append(client)
        return client


@asynccontextmanager
async def two(launch: Launching) -> AsyncIterator[Fleet]:
    fleet = Fleet(launch, 2)
    fleet.configure(CONFIG)
    try:
        await fleet.start()
        yield fleet
    finally:
        await fleet.close()


async def until(condition: Callable[[], object], seconds: float = 15) -> None:
    async with asyncio.timeout(seconds):
        while not condition():
            await asyncio.sleep(0.01)


def kill(fleet: Fleet, name: str) -> None:
    pid = fleet.named(name).client.pid
    assert pid is not None
    os.kill(pid, signal.SIGKILL)


def request() -> RequestSpec:
    return RequestSpec(id="r", prompt=[1, 2], params=SamplingParams(max_tokens=4), seed=1)


async def tokens(fleet: Fleet) -> list[int]:
    return [token async for delta in fleet.submit(request()) for token in delta.tokens]


@pytest.fixture
def slow_ends(monkeypatch: pytest.MonkeyPatch) -> asyncio.Event:
    """Engines that are asked to end do so once this is set."""
    may_end, stop = asyncio.Event(), EngineProcess.stop

    async def slow_stop(process: EngineProcess, grace: float) -> None:
        await may_end.wait()
        await stop(process, grace)

    monkeypatch.setattr(EngineProcess, "stop", slow_stop)
    return may_end


def test_a_fleet_waits_for_a_replica_that_is_being_restarted(slow_ends: asyncio.Event) -> None:
    """The server ended, since no replica served, when the other died meanwhile."""

    async def main() -> None:
        async with two(Launching()) as fleet:
            fleet.restart("0")
            await until(lambda: fleet.named("0").condition == "restarting")
            kill(fleet, "1")
            await until(lambda: fleet.named("1").condition == "failed")
            gone = asyncio.create_task(fleet.gone())
            await asyncio.sleep(0)
            assert not gone.done() and fleet.failure is None
            with pytest.raises(EngineGone):
                await tokens(fleet)
            slow_ends.set()
            await until(lambda: fleet.named("0").condition == "starting")
            with pytest.raises(EngineGone, match="the engine is still starting; try again later"):
                await asyncio.wait_for(tokens(fleet), 10)
            await until(lambda: fleet.named("0").serves)
            assert not gone.done() and fleet.failure is None
            assert await tokens(fleet) == [1, 2, 1, 2]
            gone.cancel()

    asyncio.run(main())


def test_a_fleet_ends_where_the_one_that_it_waits_for_does_not_start() -> None:
    """It went on for ever without an engine."""
    launch = Launching()

    async def main() -> None:
        async with two(launch) as fleet:
            launch.factory = "no_such_module:build"
            fleet.restart("0")
            await until(lambda: fleet.named("0").condition == "starting")
            kill(fleet, "1")
            await asyncio.wait_for(fleet.gone(), 15)
            assert fleet.failure is not None

    asyncio.run(main())


def test_one_that_cannot_be_started_again_is_listed_as_failed() -> None:
    """It was gone from the list, and no later engine took its place."""
    launch = Launching()

    async def main() -> None:
        async with two(launch) as fleet:
            launch.full_from = 2
            fleet.restart("0")
            await until(lambda: fleet.named("0").condition == "failed")
            reason = "no process can be started for replica '0': no room for a process"
            assert fleet.named("0").client.failure == reason
            launch.full_from = None
            fleet.restart("0")
            await until(lambda: fleet.named("0").serves)

    asyncio.run(main())


def test_an_engine_that_cannot_be_configured_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its process was left behind, waiting for its configuration."""
    launch = Launching()

    def fails(client: ProcessClient, config: EngineConfig) -> None:
        raise PluginError("launcher 'odd': configure failed: KeyError")

    async def main() -> None:
        async with two(launch) as fleet:
            monkeypatch.setattr(ProcessClient, "configure", fails)
            message = "no process can be started for replica '2': launcher 'odd': configure failed: KeyError"
            with pytest.raises(FleetError, match=message):
                fleet.add()
            assert [replica.name for replica in fleet.replicas] == ["0", "1"]
            pid = launch.clients[2].pid
            assert pid is not None
            await until(lambda: not _runs(pid))

    asyncio.run(main())


def _runs(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def test_the_last_replica_that_stays_is_not_removed() -> None:
    """A fleet without any was left where all had failed, and every later request was an internal error."""

    async def main() -> None:
        async with two(Launching()) as fleet:
            kill(fleet, "0")
            kill(fleet, "1")
            await asyncio.wait_for(fleet.gone(), 15)
            fleet.remove("0")
            await until(lambda: len(fleet.replicas) == 1)
            with pytest.raises(FleetError, match="replica '1' is the last one that stays; add another first"):
                fleet.remove("1")
            with pytest.raises(FleetError, match="there is no replica '0'; known: 1"):
                fleet.remove("0")

    asyncio.run(main())


# ------------------------------------------------------------------ fleets that sleep


@pytest.mark.parametrize("full_from", [0, 1])
def test_a_wake_that_has_no_room_keeps_the_number_of_replicas(full_from: int) -> None:
    """The fleet had one replica from then on."""
    launch = Launching()

    async def main() -> None:
        fleet = Fleet(launch, 2, asleep=True)
        launch.full_from = full_from
        with pytest.raises(OSError, match="no room"):
            await fleet.wake(CONFIG)
        await fleet.sleep()
        launch.full_from = None
        try:
            await fleet.wake(CONFIG)
            assert [replica.condition for replica in fleet.replicas] == ["serving", "serving"]
        finally:
            await fleet.close()

    asyncio.run(main())
    assert all(client.pid is not None and not _runs(client.pid) for client in launch.clients)


@pytest.mark.parametrize("ask", [tokens, lambda fleet: fleet.admin(ShowScheduler(id=""))])
def test_a_fleet_that_sleeps_says_that_its_engines_have_been_unloaded(
    ask: Callable[[Fleet], Awaitable[object]],
) -> None:
    """Requests that came while an engine that had died was unloaded were an internal error."""

    async def main() -> None:
        with pytest.raises(EngineGone, match="the model's engines have been unloaded; ask again"):
            await ask(Fleet(Launching(), 2, asleep=True))

    asyncio.run(main())
