"""Which model is loaded when, of several that have not all room: with engines that only say what was done."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Mapping
from types import SimpleNamespace
from typing import Any, cast

import pytest

from turnout.config import EngineConfig
from turnout.core.errors import ConfigError, EngineError, Overloaded, TurnoutError
from turnout.server.fleet.arms import Arms
from turnout.server.fleet.models import keeper, residence
from turnout.server.fleet.models.budget import Budget
from turnout.server.fleet.models.hosted_model import HostedModel
from turnout.server.fleet.models.models import Models
from turnout.server.fleet.models.residence import Stay
from turnout.server.http.errors import ApiError


class Engines:
    """Stands in for a fleet: its engines load in no time, unless they are told otherwise."""

    def __init__(self) -> None:
        self.replicas: list[Any] = []
        self.rollout: Any = None
        self.failure: str | None = None
        self.dismissed = False
        self.restarting = False
        self.progress: float | None = None
        self.requests = 0
        self.done: list[str] = []
        self.loading: Callable[[], Awaitable[object]] = lambda: asyncio.sleep(0)
        self._gone = asyncio.Event()

    @property
    def idle(self) -> bool:
        return self.requests == 0

    async def wake(self, config: EngineConfig) -> None:
        self.done.append("load")
        await self.loading()
        self.failure = None
        self._gone.clear()
        self.replicas = [
            SimpleNamespace(leaving=False, draining=False, started=True, client=SimpleNamespace(place=""))
        ]

    async def sleep(self) -> None:
        assert self.idle, "a busy model was unloaded"
        self.done.append("unload")
        self.replicas = []

    async def gone(self) -> None:
        await self._gone.wait()

    def die(self, reason: str) -> None:
        self.failure = reason
        self._gone.set()

    async def close(self) -> None:
        pass


class Served:
    """Models on demand, and a keeper that runs."""

    def __init__(self, stays: Mapping[str, Stay], budget: Budget, **engine: Any) -> None:
        self.engines = {name: Engines() for name in stays}
        config = EngineConfig(**engine)
        self.models = Models(
            [
                HostedModel(
                    Arms.of_one(cast(Any, self.engines[name]), cast(Any, None), config), name, (), stay
                )
                for name, stay in stays.items()
            ],
            budget,
        )
        self.order: list[tuple[str, int]] = []

    async def ask(self, name: str, number: int = 0, until: float | asyncio.Event = 0.0) -> float:
        """Serve a request, for so many seconds or until then; returns how long it waited."""
        model, engines = self.models.named(name), self.engines[name]
        entry = model.residence.enter_now() or await self.models.entry(model)
        with entry:
            assert engines.replicas, "the model is not loaded"
            engines.requests += 1
            self.order.append((name, number))
        await (asyncio.sleep(until) if isinstance(until, float) else until.wait())
        engines.requests -= 1
        return entry.waited

    def loads(self, name: str) -> int:
        return self.engines[name].done.count("load")

    def states(self) -> str:
        return " ".join(model.state for model in self.models.all)


async def until(condition: Callable[[], object]) -> None:
    while not condition():
        await asyncio.sleep(0.001)


def run(
    play: Callable[[Served], Awaitable[None]],
    stays: Mapping[str, Stay] | None = None,
    budget: Budget | None = None,
    **engine: Any,
) -> None:
    """Play what happens to models, by default three with room for two."""
    stays = stays or {name: Stay(on_demand=True) for name in "abc"}

    async def main() -> None:
        served = Served(stays, budget or Budget(2, 9.0), **engine)
        running = asyncio.create_task(served.models.gone())
        try:
            async with asyncio.timeout(20):
                await play(served)
        finally:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)
            await served.models.close()

    asyncio.run(main())


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """A second becomes some milliseconds."""
    monkeypatch.setattr(residence, "LEAST_STAY_SECONDS", 0.01)
    monkeypatch.setattr(residence, "QUIET_SECONDS", 0.001)
    monkeypatch.setattr(residence, "RETRY_SECONDS", 0.05)
    monkeypatch.setattr(keeper, "LOOK_SECONDS", 0.001)


# ------------------------------------------------------------------ fairness


def test_of_many_requests_none_is_lost_and_each_is_served_in_turn() -> None:
    """1,000 over three models with room for two: in order of arrival for each model, and none for ever."""

    async def play(served: Served) -> None:
        dice = random.Random(32)
        names = [dice.choice("abc") for _ in range(1000)]
        waits = await asyncio.gather(*(served.ask(name, i, 0.001) for i, name in enumerate(names)))
        assert len(served.order) == 1000
        for name in "abc":
            assert [i for of, i in served.order if of == name] == [
                i for i, of in enumerate(names) if of == name
            ]
        assert sum(map(served.loads, "abc")) == 3, "each waits for one load alone"
        assert max(waits) < 10

    run(play)


def test_models_that_are_always_asked_for_take_turns() -> None:
    async def play(served: Served) -> None:
        ended = False
        waits: dict[str, list[float]] = {name: [] for name in "abc"}

        async def client(name: str) -> None:
            while not ended:
                waits[name].append(await served.ask(name, 0, 0.002))

        clients = [asyncio.create_task(client(name)) for name in "abc" for _ in range(4)]
        while min(map(served.loads, "abc")) < 3:
            await asyncio.sleep(0.01)
        ended = True
        await asyncio.gather(*clients)
        for name in "abc":
            assert len(waits[name]) > served.loads(name), "a model serves several requests between two loads"

    run(play)


def test_clients_that_ask_in_turn_cannot_have_it_load_without_end() -> None:
    """A model stays at least as long as its load took: half of the time, at most, goes into loads."""

    async def play(served: Served) -> None:
        for engines in served.engines.values():
            engines.loading = lambda: asyncio.sleep(0.05)
        began = asyncio.get_running_loop().time()
        for number in range(6):
            await served.ask("ab"[number % 2], number)
        took = asyncio.get_running_loop().time() - began
        loads = served.loads("a") + served.loads("b")
        assert loads == 6 and took > 2 * 0.05 * (loads - 1)

    run(play, budget=Budget(1, 9.0))


def test_clients_that_want_no_model_kept_cannot_have_it_load_without_end() -> None:
    async def play(served: Served) -> None:
        served.engines["a"].loading = lambda: asyncio.sleep(0.05)
        model = served.models.named("a")
        await served.ask("a")
        loaded = asyncio.get_running_loop().time()
        model.residence.keep = 0
        served.models.keeper.tell()
        await until(lambda: model.state == "unloaded")
        assert asyncio.get_running_loop().time() - loaded > 0.04

    run(play)


def test_the_model_used_longest_ago_makes_room_unless_it_is_busy_or_pinned() -> None:
    async def play(served: Served) -> None:
        for name in "ab":
            await served.ask(name)
        await served.ask("a")
        await served.ask("c")
        assert served.states() == "loaded unloaded loaded"
        over = asyncio.Event()
        long = asyncio.create_task(served.ask("a", 0, over))
        await served.ask("b")
        assert served.states() == "loaded loaded unloaded", "a is busy, though c was used later"
        served.models.pin(served.models.named("b"), pinned=True)
        over.set()
        await long
        for name in "abc":
            await served.ask(name)
        assert served.states() == "unloaded loaded loaded", "b was used later, and a stays"

    run(play)


def test_a_busy_model_ends_what_it_has_before_it_goes() -> None:
    async def play(served: Served) -> None:
        long = asyncio.create_task(served.ask("a", 0, 0.2))
        await asyncio.sleep(0.01)
        other = asyncio.create_task(served.ask("b", 1))
        await asyncio.sleep(0.1)
        late = asyncio.create_task(served.ask("a", 2))
        await asyncio.sleep(0.01)
        assert not late.done(), "it came after the one that waits for the room"
        await asyncio.gather(long, other, late)
        assert served.order == [("a", 0), ("b", 1), ("a", 2)]

    run(play, budget=Budget(1, 9.0))


def test_shares_of_the_memory_are_a_budget() -> None:
    stays = {name: Stay(on_demand=True, share=share) for name, share in (("a", 0.3), ("b", 0.3), ("c", 0.7))}

    async def play(served: Served) -> None:
        for name in "ab":
            await served.ask(name)
        await served.ask("c")
        assert served.states() == "unloaded loaded loaded"

    run(play, stays, Budget())


def test_a_model_stays_that_need_not_go() -> None:
    """One that was used longest ago went, though a larger one had to go after it, and was enough."""
    shares = {"a": 0.6, "b": 0.6, "c": 0.3, "e": 0.05}
    stays = {name: Stay(on_demand=True, share=share, pinned=name == "c") for name, share in shares.items()}

    async def play(served: Served) -> None:
        for name in "acbea":
            await served.ask(name)
        await served.ask("b")
        assert served.states() == "unloaded loaded loaded loaded"
        assert served.engines["e"].done == ["load"]

    run(play, stays, Budget())


def test_models_go_that_are_needed_together() -> None:
    """Each of two is too small alone: the third, used between them, is not needed beside the later one."""
    shares = {"a": 0.4, "b": 0.1, "c": 0.5, "d": 0.8}
    stays = {name: Stay(on_demand=True, share=share) for name, share in shares.items()}

    async def play(served: Served) -> None:
        for name in "abc":
            await served.ask(name)
        await served.ask("d")
        assert served.states() == "unloaded loaded unloaded loaded"

    run(play, stays, Budget())


# ------------------------------------------------------------------ idle models


def test_an_idle_model_is_unloaded_and_a_pinned_one_stays() -> None:
    stays = {
        "a": Stay(on_demand=True, unload_after=0.05),
        "b": Stay(on_demand=True, unload_after=0.05, pinned=True),
        "c": Stay(on_demand=True),
    }

    async def play(served: Served) -> None:
        for name in "abc":
            await served.ask(name)
        await until(lambda: served.states() == "unloaded loaded loaded")
        busy = asyncio.create_task(served.ask("a", 0, 0.2))
        await until(lambda: served.states() == "loaded loaded loaded")
        await asyncio.sleep(0.1)
        assert served.states() == "loaded loaded loaded"
        await busy

    run(play, stays, Budget.all())


# ------------------------------------------------------------------ bounds


def test_so_many_requests_wait_and_no_more() -> None:
    async def play(served: Served) -> None:
        never = asyncio.Event()
        served.engines["a"].loading = never.wait
        waiting = [asyncio.create_task(served.ask("a")) for _ in range(10_000)]
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        refused = [task for task in waiting if task.done()]
        assert len(refused) == 10_000 - 12
        with pytest.raises(Overloaded, match="12 requests wait for the model to be loaded"):
            refused[0].result()
        for task in waiting[:12]:
            task.cancel()  # their clients leave
        await asyncio.gather(*waiting, return_exceptions=True)
        assert not served.models.named("a").residence.requests
        never.set()
        assert await served.ask("a") >= 0

    run(play, max_waiting=8, max_num_seqs=4)


def test_a_load_that_hangs_is_given_up() -> None:
    stays = {"a": Stay(on_demand=True, load_seconds=0.05)}

    async def play(served: Served) -> None:
        served.engines["a"].loading = asyncio.Event().wait
        with pytest.raises(TurnoutError, match="load-timeout"):
            await served.ask("a")
        await until(lambda: served.states() == "failed")
        assert served.engines["a"].done == ["load", "unload"]

    run(play, stays)


# ------------------------------------------------------------------ failures


def test_a_load_that_fails_is_tried_again_later() -> None:
    async def play(served: Served) -> None:
        async def fail() -> None:
            raise EngineError("the weights are gone")

        engines, model = served.engines["a"], served.models.named("a")
        engines.loading = fail
        answers = await asyncio.gather(*(served.ask("a") for _ in range(3)), return_exceptions=True)
        for answer in answers:
            assert (
                isinstance(answer, ApiError) and answer.code == "model_load_failed" and answer.status == 503
            )
            assert "the weights are gone" in str(answer) and answer.headers == {"Retry-After": "1"}
        assert served.states() == "failed unloaded unloaded" and model.reason == "the weights are gone"
        with pytest.raises(ApiError, match="the weights are gone"):
            await served.ask("a")
        assert served.loads("a") == 1, "not at once"
        await until(lambda: not model.residence.retry_in)
        with pytest.raises(ApiError, match="the weights are gone"):
            await served.ask("a")
        assert served.loads("a") == 2
        engines.loading = lambda: asyncio.sleep(0)
        served.models.load(model)
        await until(lambda: served.states() == "loaded unloaded unloaded")
        assert model.reason is None

    run(play)


def test_engines_that_are_given_up_are_loaded_again() -> None:
    async def play(served: Served) -> None:
        await served.ask("a")
        await asyncio.sleep(0)
        served.engines["a"].die("it died too often")
        await until(lambda: served.models.named("a").residence.state == "failed")
        assert served.models.named("a").reason == "it died too often"
        await until(lambda: not served.models.named("a").residence.retry_in)
        await served.ask("a")
        assert served.loads("a") == 2

    run(play)


def test_a_server_that_ends_ends_the_wait() -> None:
    async def play(served: Served) -> None:
        served.engines["a"].loading = asyncio.Event().wait
        waiting = asyncio.create_task(served.ask("a"))
        await asyncio.sleep(0.01)
        served.models.keeper.refuse("it ends")
        with pytest.raises(EngineError, match="it ends"):
            await waiting
        with pytest.raises(EngineError, match="it ends"):
            await served.ask("b")

    run(play)


# ------------------------------------------------------------------ commands


def test_commands_load_and_unload() -> None:
    async def play(served: Served) -> None:
        a = served.models.named("a")
        served.models.load(a)
        await until(lambda: a.state == "loaded")
        long = asyncio.create_task(served.ask("a", 0, 0.05))
        await until(lambda: served.order)
        served.models.unload(a)
        await until(lambda: a.state == "unloading")
        assert not long.done(), "its request ends first"
        await long
        await until(lambda: a.state == "unloaded")
        served.models.pin(a, pinned=True)
        await served.ask("a")
        with pytest.raises(ApiError, match="is pinned"):
            served.models.unload(a)

    run(play)


@pytest.mark.parametrize("left", ["a drained replica", "a paused rollout"])
def test_a_command_loads_a_model_again_that_was_given_up(left: str) -> None:
    """It waited for ever: a replica drained before it failed, and a rollout, counted as what would end."""

    async def play(served: Served) -> None:
        model, engines = served.models.named("a"), served.engines["a"]
        served.models.load(model)
        await until(lambda: model.state == "loaded")
        if left == "a drained replica":
            engines.replicas[0].draining = True
        else:
            engines.rollout = SimpleNamespace(state="paused")
        engines.die("it died too often")
        assert model.state == "failed"
        served.models.load(model)
        await until(lambda: model.state == "loaded")
        assert served.loads("a") == 2

    run(play, {"a": Stay(), "b": Stay()})


def test_a_command_that_comes_while_a_model_loads_loads_it_once() -> None:
    """It was remembered, so that the model was loaded again as soon as it had been unloaded."""

    async def play(served: Served) -> None:
        model = served.models.named("a")
        loaded = asyncio.Event()
        served.engines["a"].loading = loaded.wait
        served.models.load(model)
        await until(lambda: model.state == "loading")
        served.models.load(model)
        loaded.set()
        await until(lambda: model.state == "loaded")
        await until(lambda: model.state == "unloaded")
        await asyncio.sleep(0.05)
        assert (model.state, served.loads("a")) == ("unloaded", 1)

    run(play, {"a": Stay(on_demand=True, unload_after=0.02)})


def test_a_model_that_is_pinned_while_it_drains_for_another_stays() -> None:
    """It was unloaded all the same."""

    async def play(served: Served) -> None:
        one, other = served.models.named("a"), served.models.named("b")
        await served.ask("a")
        await served.ask("b")
        answered = asyncio.Event()
        asking = [asyncio.create_task(served.ask(name, until=answered)) for name in "ab"]
        await asyncio.sleep(0.05)
        waiting = asyncio.create_task(served.ask("c"))
        await until(lambda: one.state == "unloading")
        served.models.pin(one, pinned=True)
        answered.set()
        await asyncio.gather(*asking, waiting)
        assert (one.state, other.state) == ("loaded", "unloaded"), served.states()

    run(play)


def test_a_model_that_never_had_room_is_refused_with_the_sums() -> None:
    stays = {
        "a": Stay(on_demand=True, share=0.6, pinned=True),
        "b": Stay(on_demand=True, share=0.3),
        "c": Stay(on_demand=True, share=0.5),
    }
    with pytest.raises(
        ConfigError, match=r"'c' could never .* beside the pinned a: .* a 0\.6 \+ c 0\.5 = 1\.1"
    ):
        Budget().check(stays)
    with pytest.raises(ConfigError, match=r"'b' could never .* 2 models, of 1"):
        Budget(1).check(stays)
