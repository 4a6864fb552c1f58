"""Plugins that watch: what they are told, that it costs nothing without them, that they do no harm."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Annotated, Any

import pytest
from pydantic import Field
from toy import EOS, ToyGreedy, drive, expected, toy_engine, toy_kv, toy_request

from turnout.config import EngineConfig
from turnout.core.engine import engine as engine_module
from turnout.core.engine import observers as observers_module
from turnout.core.engine.engine import Engine
from turnout.core.engine.observers import Observers
from turnout.core.errors import ConfigError, RequestError
from turnout.core.interfaces.figures import Figures
from turnout.core.interfaces.observers import (
    ArrivalRecord,
    EngineRecord,
    PreemptionRecord,
    RequestRecord,
    StepRecord,
    WatchingHook,
)
from turnout.core.interfaces.observers import Observer as ObserverBase
from turnout.core.interfaces.scheduling import Drop, SchedulingPolicy
from turnout.core.logs import LogStyle
from turnout.core.registry.hookspecs import hookimpl
from turnout.core.registry.registry import Registry
from turnout.core.types.request import RequestSpec
from turnout.core.types.sampling_params import SamplingParams
from turnout.plugins.schedulers.fcfs import Fcfs
from turnout.runner.choices import check_policies
from turnout.runner.policies import build_observers
from turnout.server.engine.client import ProcessClient
from turnout.server.fleet.fleet import Fleet

BLOCKS, BLOCK = 32, 4

INLINE = """
from turnout.core.registry.hookspecs import hookimpl

STEPS, REQUESTS = [], []

@hookimpl
def step_finished(step):
    STEPS.append(step)

@hookimpl
def request_finished(request):
    REQUESTS.append(request)
"""


class Watcher:
    """A plugin that keeps what it is told."""

    def __init__(self) -> None:
        self.steps: list[StepRecord] = []
        self.requests: list[RequestRecord] = []

    @hookimpl
    def step_finished(self, step: StepRecord) -> None:
        self.steps.append(step)

    @hookimpl
    def request_finished(self, request: RequestRecord) -> None:
        self.requests.append(request)


class Clumsy:
    """A plugin whose hooks fail."""

    def __init__(self) -> None:
        self.calls = Counter[str]()

    @hookimpl
    def step_finished(self, step: StepRecord) -> None:
        self.calls["step"] += 1
        raise RuntimeError("tripped over a step")

    @hookimpl
    def request_finished(self) -> None:
        self.calls["request"] += 1
        raise RuntimeError("tripped over a request")


class Impatient(SchedulingPolicy):
    """Gives up each request whose client's name asks for it."""

    def order(self, view):
        for request in (*view.running, *view.waiting):
            yield Drop(request, "not served") if request.client == "slow" else request


def watched(*plugins: object, policy: SchedulingPolicy | None = None, folder: Path | None = None) -> Engine:
    """A toy engine under the eyes of `plugins`."""
    observers = Observers(**Registry.load(extra=plugins, config_folder=folder).observers())
    return toy_engine(policy or Fcfs(), toy_kv(BLOCKS, BLOCK), observers=observers)


def workload() -> list[tuple[int, RequestSpec]]:
    return [(i, toy_request(f"r{i}", [1 + i % 6, 2, 3, 4, 5], "greedy", 3 + i, priority=i)) for i in range(6)]


# ------------------------------------------------------------------ what they are told


@pytest.fixture
def inline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[], SimpleNamespace]]:
    """A ``turnout_plugins.py``; afterwards it was never imported."""
    import sys

    (tmp_path / "turnout_plugins.py").write_text(INLINE)

    def seen() -> SimpleNamespace:
        module = sys.modules["turnout_plugins"]
        return SimpleNamespace(steps=module.STEPS, requests=module.REQUESTS)

    yield seen
    sys.modules.pop("turnout_plugins", None)


@pytest.mark.parametrize("kind", ["a file beside the config", "a plugin"])
def test_every_step_and_every_request_is_told(kind: str, tmp_path: Path, inline) -> None:
    watcher = Watcher()
    engine = watched(watcher) if kind == "a plugin" else watched(folder=tmp_path)
    outcome = drive(engine, workload())
    seen = watcher if kind == "a plugin" else inline()

    stats = engine.stats()
    assert [step.number for step in seen.steps] == list(range(1, stats.steps + 1))
    assert sum(step.tokens for step in seen.steps) == stats.computed_tokens
    assert all(0 < step.sequences <= step.tokens for step in seen.steps)
    times = [time for step in seen.steps for time in (step.started, step.ended)]
    assert times == sorted(set(times))
    last = seen.steps[-1]
    assert (last.running, last.waiting, last.kv_free) == (0, 0, BLOCKS * BLOCK)
    assert max(step.running for step in seen.steps) > 1

    assert sorted(request.id for request in seen.requests) == [f"r{i}" for i in range(6)]
    for request in seen.requests:
        (tokens,) = outcome.outputs(request.id)
        assert tokens == expected(workload()[int(request.id[1:])][1])[0]
        assert request.output_tokens == len(tokens) and request.prompt_tokens == 5
        assert request.priority == int(request.id[1:])
        assert request.finish_reason == ("stop" if tokens[-1] == EOS else "length")
        timing = request.timing
        assert timing.arrival < timing.scheduled < timing.first_token <= timing.finished
        assert timing.preempted == []


def test_preemptions_and_found_prompts_are_told() -> None:
    watcher = Watcher()
    engine = watched(watcher)
    prompt = [1, 2, 3, 4] * 6
    arrivals = [(2 * i, toy_request(f"r{i}", prompt, "greedy", 40)) for i in range(4)]
    drive(engine, arrivals)
    told = {request.id: request for request in watcher.requests}
    assert told["r0"].cached_tokens == 0 and told["r3"].cached_tokens > 0
    preempted = sum(len(request.timing.preempted) for request in watcher.requests)
    assert preempted == engine.stats().preemptions > 0
    for timing in (request.timing for request in watcher.requests):
        assert all(timing.scheduled < when < timing.finished for when in timing.preempted)


def test_however_a_request_ends_it_is_told_once(monkeypatch: pytest.MonkeyPatch) -> None:
    watcher = Watcher()
    engine = watched(watcher, policy=Impatient())
    engine.add(toy_request("aborted", [1, 2, 3], "greedy", 20))
    slow = toy_request("dropped", [1, 2, 3], "greedy", 20)
    engine.add(RequestSpec(id="dropped", prompt=slow.prompt, params=slow.params, seed=0, client="slow"))
    engine.step()
    engine.abort("aborted")
    engine.abort("aborted")
    engine.add(toy_request("failed", [1, 2, 3], "greedy", 20))
    monkeypatch.setattr(ToyGreedy, "decide", lambda *_: 1 / 0)
    engine.step()
    ends = [(request.id, request.finish_reason, request.client) for request in watcher.requests]
    assert ends == [("dropped", "error", "slow"), ("aborted", "abort", ""), ("failed", "error", "")]
    assert watcher.requests[0].timing.scheduled is None
    assert all(request.timing.finished is not None for request in watcher.requests)


def test_a_refused_request_is_not_told() -> None:
    watcher = Watcher()
    with pytest.raises(Exception, match="prompt is empty"):
        watched(watcher).add(toy_request("r", [], "greedy", 3))
    assert watcher.requests == []


# ------------------------------------------------------------------ what they cost


class NeverBuilt:
    def __init__(self, *_: object, **__: object) -> None:
        raise AssertionError("a record was built for nobody")


def test_nothing_is_built_without_observers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine_module, "StepRecord", NeverBuilt)
    monkeypatch.setattr(observers_module, "RequestRecord", NeverBuilt)
    outcome = drive(watched(), workload())
    assert len(outcome.finished) == 6
    with pytest.raises(AssertionError, match="for nobody"):  # the test can fail
        drive(watched(Watcher()), workload())


def test_who_watches_one_hook_costs_nothing_at_the_other(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[RequestRecord] = []
    monkeypatch.setattr(engine_module, "StepRecord", NeverBuilt)
    plugin = SimpleNamespace(request_finished=hookimpl(lambda request: told.append(request)))
    drive(watched(plugin), workload())
    assert len(told) == 6


# ------------------------------------------------------------------ what they can break


def test_one_that_raises_is_named_once_and_not_called_again(caplog: pytest.LogCaptureFixture) -> None:
    clumsy, watcher = Clumsy(), Watcher()
    with caplog.at_level(logging.ERROR):
        outcome = drive(watched(clumsy, watcher), workload())
    assert clumsy.calls == {"step": 1, "request": 1}
    messages = [record.getMessage() for record in caplog.records]
    assert len(messages) == 2
    for what in ("step", "request"):
        named = f"observer 'Clumsy.{what}_finished' of Clumsy: {what}_finished failed"
        assert f"{named}: RuntimeError: tripped over a {what}; it is not called again" in messages
    assert len(outcome.finished) == 6
    assert len(watcher.requests) == 6 and len(watcher.steps) > 6


def test_without_observers_an_engine_has_none() -> None:
    assert not Observers().of_steps and not Observers(**Registry.load().observers()).of_steps


def test_one_more_can_watch_the_steps_of_an_engine_that_runs() -> None:
    seen: list[StepRecord] = []
    observers = Observers()
    engine = toy_engine(Fcfs(), toy_kv(BLOCKS, BLOCK), observers=observers)
    engine.add(toy_request("r", [1, 2, 3], "greedy", 4))
    engine.step()
    observers.watch_steps(WatchingHook("late", lambda step: seen.append(step)))
    assert [observer.name for observer in observers.all()] == ["late"]
    while engine.busy:
        engine.step()
    assert [step.number for step in seen] == list(range(2, engine.stats().steps + 1))


# ------------------------------------------------------------------ arrivals, preemptions, the end


class Thorough:
    """A plugin that keeps every record, in order."""

    def __init__(self) -> None:
        self.seen: list[object] = []

    @hookimpl
    def request_arrived(self, request: ArrivalRecord) -> None:
        self.seen.append(request)

    @hookimpl
    def request_preempted(self, request: PreemptionRecord) -> None:
        self.seen.append(request)

    @hookimpl
    def request_finished(self, request: RequestRecord) -> None:
        self.seen.append(request)

    @hookimpl
    def engine_closed(self, engine: EngineRecord) -> None:
        self.seen.append(engine)

    def of(self, kind: type) -> list[Any]:
        return [record for record in self.seen if isinstance(record, kind)]


def test_arrivals_come_before_ends_and_refusals_not_at_all() -> None:
    watcher = Thorough()
    engine = watched(watcher)
    with pytest.raises(RequestError):
        engine.add(toy_request("huge", [1] * 1000, "greedy", 3))
    drive(engine, workload())
    arrivals, ends = watcher.of(ArrivalRecord), watcher.of(RequestRecord)
    assert [record.id for record in arrivals] == [f"r{i}" for i in range(6)]
    assert [(record.prompt_tokens, record.max_tokens, record.priority) for record in arrivals] == [
        (5, 3 + i, i) for i in range(6)
    ]
    by_id = {record.id: watcher.seen.index(record) for record in arrivals}
    assert all(by_id[record.id] < watcher.seen.index(record) for record in ends)
    assert {record.id: record.arrival for record in arrivals} == {r.id: r.timing.arrival for r in ends}
    assert all(record.waiting >= 1 for record in arrivals)


def test_each_preemption_is_told_once() -> None:
    watcher = Thorough()
    observers = Observers(**Registry.load(extra=[watcher]).observers())
    engine = toy_engine(Fcfs(), toy_kv(6, 4), observers=observers)
    drive(engine, [(0, toy_request(f"r{i}", [1, 2, 3, 4], "lookup", 12)) for i in range(3)])
    told = watcher.of(PreemptionRecord)
    assert len(told) == engine.stats().preemptions > 0
    times = {record.id: record.timing.preempted for record in watcher.of(RequestRecord)}
    assert {id: [r.at for r in told if r.id == id] for id in times} == times
    assert [r.preemptions for r in told if r.id == told[0].id] == [*range(1, 1 + len(times[told[0].id]))]


def test_records_say_which_engine_it_is_and_when_it_ends() -> None:
    watcher, steps = Thorough(), Watcher()
    engine = watched(watcher, steps)
    engine.locate(arm="long", replica="replica-1")
    drive(engine, workload())
    engine.close()
    engine.close()
    records = [*watcher.seen, *steps.steps]
    assert {(record.arm, record.replica) for record in records} == {("long", "replica-1")}  # type: ignore[attr-defined]
    (end,) = watcher.of(EngineRecord)
    assert watcher.seen[-1] is end and end.steps == len(steps.steps)
    assert end.output_tokens == sum(record.output_tokens for record in watcher.of(RequestRecord))


def test_a_server_tells_its_arm_and_its_end(tmp_path: Path) -> None:
    """In the engine's own process, which writes what it saw where the plugin says."""
    log = tmp_path / "seen"
    (tmp_path / "turnout_plugins.py").write_text(
        "from turnout.core.registry.hookspecs import hookimpl\n"
        "@hookimpl\n"
        "def engine_closed(engine):\n"
        f"    open({str(log)!r}, 'w').write(f'{{engine.arm}} {{engine.steps}}')\n"
    )
    config = EngineConfig(kv_memory="16MiB", device="cpu", cpu_kernels="torch", plugins_folder=str(tmp_path))

    async def serve() -> None:
        client = Fleet(lambda order: ProcessClient(log=LogStyle("critical"), arm="long", replica=order.name))
        client.configure(config)
        await client.start()
        params = SamplingParams(temperature=0, max_tokens=3, ignore_eos=True)
        async for _ in client.submit(RequestSpec(id="r", prompt=[1, 2], params=params, seed=0)):
            pass
        await client.close()

    asyncio.run(serve())
    arm, steps = log.read_text().split()
    assert arm == "long" and int(steps) >= 3


# ------------------------------------------------------------------ observers that are chosen, with options


class Slow(ObserverBase):
    """Counts the steps of at least so many tokens."""

    def __init__(self, tokens: Annotated[int, Field(ge=1)] = 2) -> None:
        self.tokens = tokens
        self.steps = 0
        self.closed = False

    def step_finished(self, step: StepRecord) -> None:
        self.steps += step.tokens >= self.tokens

    def engine_closed(self, engine: EngineRecord) -> None:
        self.closed = True

    def figures(self) -> Figures:
        return Figures(counters={"steps": self.steps})


class Offering:
    @hookimpl
    def register_observers(self, register: Any) -> None:
        register("slow", Slow)


OFFERED = Registry.load(extra=[Offering()])


def test_a_chosen_observer_has_options_and_figures() -> None:
    observers = build_observers(OFFERED, EngineConfig(observer=["slow:tokens=5", "slow"]))
    engine = toy_engine(Fcfs(), toy_kv(BLOCKS, BLOCK), observers=observers)
    drive(engine, [(0, toy_request("r", [1, 2, 3, 4, 5, 6], "greedy", 4))])
    engine.close()
    assert not observers.of_preemptions, "it does not override that"
    strict, lax = observers.chosen
    assert isinstance(strict, Slow) and isinstance(lax, Slow) and strict.closed
    assert (strict.tokens, lax.tokens, strict.steps, lax.steps) == (5, 2, 1, 1)
    shown = [figure for figure in engine.stats().figures if figure.name == "steps"]
    assert [(figure.plugin, figure.value) for figure in shown] == [("observer 'slow' of Offering", 1.0)] * 2


def test_without_being_chosen_it_is_not_called() -> None:
    assert build_observers(OFFERED, EngineConfig()).all() == []


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("slow:tokens=0", "tokens"),
        ("slow:words=3", "words"),
        ("slwo", "did you mean 'slow'"),
        ("Watcher.step_finished", "no observer is called"),
    ],
)
def test_a_wrong_choice_is_refused_at_the_start(spec: str, message: str) -> None:
    registry = Registry.load(extra=[Offering(), Watcher()])
    with pytest.raises(ConfigError, match=message):
        check_policies(registry, EngineConfig(observer=spec))
