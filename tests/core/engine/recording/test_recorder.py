"""The record of a watched engine: phases of requests, decisions of steps, and the policy's own words."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from itertools import cycle, pairwise

import msgspec
import pytest
from toy import drive, toy_engine, toy_kv, toy_request

from turnout.core.engine.engine import Engine
from turnout.core.engine.recording.kv_cells import MAX_CELLS, live_kv
from turnout.core.engine.recording.recorder import MAX_NAMES, Recorder
from turnout.core.interfaces.scheduling import Entry, SchedulingPolicy
from turnout.core.registry.registry import Registry
from turnout.core.scheduling.order import Order, Stretch
from turnout.core.scheduling.preemption import Swap
from turnout.core.types.live.news import EngineNews, StepTrace
from turnout.core.types.messages import KVSnapshot
from turnout.core.types.request import RequestSpec, RequestView
from turnout.core.types.views import View
from turnout.plugins.schedulers.fcfs import Fcfs

EPOCH = 1000.0
BUILT_IN = (
    *("deadline", "fair", "fcfs", "hrrn", "ljf", "lpm", "mlfq", "prefill-first", "priority", "sarathi"),
    *("sjf", "srpt", "static"),
)


def _watched(engine: Engine) -> Recorder:
    recorder = engine.watch(EPOCH)
    assert recorder is not None
    return recorder


def _news(engine: Engine, recorder: Recorder) -> EngineNews:
    return recorder.news(engine.stats(), "fcfs")


def _requests(count: int, prompt: int = 6, output: int = 6) -> list[tuple[int, RequestSpec]]:
    return [(0, toy_request(f"r{i}", [1 + i % 5] * prompt, "greedy", output)) for i in range(count)]


def _phases(news: EngineNews, name: str) -> list[str]:
    """The phases of a request that have ended, in order."""
    ended = sorted((start, phase) for id, phase, start, end in news.spans if id == name and end is not None)
    return [phase for _, phase in ended]


def test_a_request_waits_is_computed_and_decodes() -> None:
    engine = toy_engine(Fcfs(), toy_kv(64, 4))
    recorder = _watched(engine)
    drive(engine, _requests(1))
    news = _news(engine, recorder)

    (request,) = news.requests
    assert (request.id, request.state, request.prompt_tokens) == ("r0", "ended", 6)
    assert request.finish_reason in ("stop", "length") and request.output_tokens
    assert _phases(news, "r0") == ["waiting", "prefill", "decode"]
    spans = sorted(span[2:] for span in news.spans)
    assert all(ended == begun for (_, ended), (begun, _) in pairwise(spans))
    assert all(time >= EPOCH for span in spans for time in span if time is not None)


def test_a_request_of_several_choices_tells_how_many_still_run() -> None:
    engine = toy_engine(Fcfs(), toy_kv(64, 4))
    recorder = _watched(engine)
    request = toy_request("r0", [1, 2, 3], "parallel", 8, n=3)
    drive(engine, [(0, request)])
    breadths = _news(engine, recorder).breadths
    assert next((id, number) for id, _, number in breadths) == ("r0", 3)
    numbers, times = [number for *_, number in breadths], [at for _, at, _ in breadths]
    assert numbers == sorted(numbers, reverse=True) and times == sorted(times) and times[0] >= EPOCH
    assert not recorder.news(engine.stats(), "fcfs").breadths


def test_a_step_tells_order_grants_admissions_and_what_the_policy_says() -> None:
    engine = toy_engine(Fcfs(), toy_kv(64, 4), slots=2)
    recorder = _watched(engine)
    for _, request in _requests(4):
        engine.add(request)
    engine.step()
    (step,) = _news(engine, recorder).steps

    assert step.number == 1 and step.ended > step.started and step.tokens == 12
    assert step.order == ["r0", "r1", "r2", "r3"]
    assert step.admitted == ["r0", "r1"] and (step.running, step.waiting) == (2, 2)
    assert step.grants == [("r0", 6, "prefill", 6, 6), ("r1", 6, "prefill", 6, 6)]
    assert step.why["r3"] == "place 4 of 4, by arrival"

    engine.step()
    news = _news(engine, recorder)
    assert not news.requests and ("r0", "decode", 7, 2, 0) in news.progress
    assert news.steps[0].grants[0] == ("r0", 1, "decode", 7, 7)


@pytest.mark.parametrize("swaps", [True, False])
def test_a_preempted_request_is_seen_to_be_preempted_and_to_come_back(swaps: bool) -> None:
    kv = toy_kv(8, 4, swap=64) if swaps else toy_kv(8, 4)
    engine = toy_engine(Fcfs(), kv, preemption=Swap() if swaps else None)
    recorder = _watched(engine)
    drive(engine, _requests(4, prompt=5, output=12))
    news = _news(engine, recorder)

    preempted = [each for step in news.steps for each in step.preempted]
    assert preempted and {how for _, how in preempted} == {"swap" if swaps else "recompute"}
    name = preempted[0][0]
    place = _phases(news, name).index("swapped" if swaps else "preempted")
    assert _phases(news, name)[place + 1] == "prefill"
    assert next(request for request in news.requests if request.id == name).preemptions
    if swaps:
        assert any("swap_out" in step.moved for step in news.steps)


def test_requests_that_were_there_before_are_told_of_too() -> None:
    engine = toy_engine(Fcfs(), toy_kv(64, 4), slots=1)
    for _, request in _requests(2, output=20):
        engine.add(request)
    engine.step()
    recorder = _watched(engine)
    news = _news(engine, recorder)
    assert news.began and {request.id: request.state for request in news.requests} == {
        "r0": "decode",
        "r1": "waiting",
    }
    assert not _news(engine, recorder).began


def test_watching_changes_no_token_and_no_step() -> None:
    def outcome(*, watched: bool) -> object:
        engine = toy_engine(Fcfs(), toy_kv(10, 4))
        if watched:
            engine.watch(EPOCH)
        done = drive(engine, _requests(8, output=9))
        return done.tokens, done.steps

    assert outcome(watched=True) == outcome(watched=False)


def test_an_engine_that_is_watched_no_longer_records_nothing() -> None:
    engine = toy_engine(Fcfs(), toy_kv(64, 4))
    recorder = _watched(engine)
    engine.watch(None)
    drive(engine, _requests(2))
    news = _news(engine, recorder)
    assert not (news.steps or news.requests or news.spans)


class _Lazy(SchedulingPolicy):
    """Yields those that wait only once."""

    def order(self, view: View) -> Iterable[Entry]:
        return Order([*view.running, Stretch(iter(view.waiting))])


def test_an_order_that_can_be_read_once_is_still_served_when_it_is_recorded() -> None:
    engine = toy_engine(_Lazy(), toy_kv(64, 4), slots=2)
    recorder = _watched(engine)
    drive(engine, _requests(5))
    assert _news(engine, recorder).steps[0].order == [f"r{i}" for i in range(5)]


class _Endless(SchedulingPolicy):
    def order(self, view: View) -> Iterable[Entry]:
        return Order([*view.running, Stretch(cycle(view.running or view.waiting))])


def test_an_order_that_never_ends_is_recorded_as_far_as_there_are_requests() -> None:
    """The recorder looked for those that wait, and found none of them for ever."""
    engine = toy_engine(_Endless(), toy_kv(64, 4), slots=2, strict=False)
    _watched(engine)
    outcome = drive(engine, _requests(5))
    assert set(outcome.finished) == {f"r{i}" for i in range(5)} and engine.stats().policy_faults


class _Talker(Fcfs):
    def __init__(self, say: Callable[[], object]) -> None:
        super().__init__()
        self._say = say

    def why(self, request: RequestView) -> str:
        return self._say()  # type: ignore[return-value]


def _raise() -> object:
    raise ZeroDivisionError("no idea")


@pytest.mark.parametrize("say", [_raise, lambda: 7])
def test_a_fault_in_why_costs_nothing_but_the_words(
    say: Callable[[], object], caplog: pytest.LogCaptureFixture
) -> None:
    engine = toy_engine(_Talker(say), toy_kv(64, 4), strict=False)
    recorder = _watched(engine)
    with caplog.at_level(logging.ERROR):
        drive(engine, _requests(3))
    assert not any(step.why for step in _news(engine, recorder).steps)
    assert engine.stats().policy_faults and "_Talker" in caplog.text and "why failed" in caplog.text


def test_words_are_cut_and_stay_on_one_line() -> None:
    engine = toy_engine(_Talker(lambda: "so\n" + "x" * 5000), toy_kv(64, 4))
    recorder = _watched(engine)
    engine.add(_requests(1)[0][1])
    engine.step()
    (text,) = _news(engine, recorder).steps[0].why.values()
    assert len(text) == 200 and text.startswith("so xx")


def test_the_policy_is_not_asked_why_while_nobody_watches() -> None:
    engine = toy_engine(_Talker(_raise), toy_kv(64, 4))
    drive(engine, _requests(3))
    assert not engine.stats().policy_faults


@pytest.mark.parametrize("name", BUILT_IN)
def test_built_in_policies_say_something_of_all_requests(name: str) -> None:
    engine = toy_engine(Registry.load().create("scheduler", name), toy_kv(8, 4), slots=2)
    recorder = _watched(engine)
    for _, request in _requests(5, prompt=4, output=12):
        engine.add(request)
    said: dict[str, str] = {}
    while engine.busy:
        engine.step()
        for step in _news(engine, recorder).steps:
            said |= step.why
    assert set(said) == {f"r{i}" for i in range(5)} and all(said.values())


def test_what_steps_tell_is_bounded_however_many_requests_there_are() -> None:
    engine = toy_engine(Fcfs(), toy_kv(4000, 4), slots=500, budget=1000)
    recorder = _watched(engine)
    name = "cmpl-0123456789abcdef0123456789abcdef-"
    for i in range(1000):
        engine.add(toy_request(f"{name}{i}", [1 + i % 5] * 4, "greedy", 200))
    engine.step()
    _news(engine, recorder)
    for _ in range(60):
        engine.step()
    news = _news(engine, recorder)
    assert sum(len(step.grants) + len(step.order or ()) for step in news.steps) < MAX_NAMES + 200
    assert news.steps[-1].thin and not news.steps[0].thin
    assert len(msgspec.json.encode(news.steps)) < 160_000


def test_a_pool_of_many_blocks_is_shown_in_cells_that_stand_for_several() -> None:
    states = [("held", 3), ("free", 90_000), ("shared", 1), ("cached", 9_996)]
    snapshot = KVSnapshot(
        capacity=1_600_000, free=0, held=0, shared=0, computed=0, cached=0, pinned=0, swap=0, swapped=0,
        lookups=0, hits=0, evictions=0, unit=16, states=states,
    )  # fmt: skip
    kv = live_kv(snapshot)
    assert kv.cell == 25 and sum(count for _, count in kv.runs) == 4000 <= MAX_CELLS
    assert kv.runs == [("held", 1), ("free", 3599), ("shared", 1), ("cached", 399)]


def test_blocks_are_told_with_their_holders_and_steps_with_what_they_evicted() -> None:
    kv = toy_kv(16, 4)
    engine = toy_engine(Fcfs(), kv)
    assert kv.prefixes is not None
    kv.prefixes.pin("system", [1] * 4, "")
    recorder = _watched(engine)
    drive(engine, [(0, toy_request("a", [1] * 8, "greedy", 2))])
    alone = _news(engine, recorder).kv
    assert alone is not None and alone.pins == ["system"] and not alone.holders
    assert sum(cells for owner, _, cells in alone.owners if owner == -1) == 1

    for name in ("b", "c"):
        engine.add(toy_request(name, [1] * 8 + [2], "greedy", 20))
    engine.step()
    engine.step()
    recorder._next_kv = 0.0
    both = _news(engine, recorder).kv
    assert both is not None and both.holders == ["b", "c"]
    assert sum(cells for *_, cells in both.owners) == 16
    shared = sum(cells for _, users, cells in both.owners if users == 2)
    assert shared == sum(cells for state, cells in both.runs if state == "shared") == 2

    for number in range(6):
        engine.add(toy_request(f"d{number}", [3 + number % 2] * 12, "greedy", 12))
    evicted = 0
    while engine.busy:
        engine.step()
        evicted += sum(step.evicted for step in _news(engine, recorder).steps)
    assert evicted == kv.snapshot().evictions > 0


def test_whose_the_cells_of_a_large_pool_are_is_told_too() -> None:
    kv = toy_kv(3 * MAX_CELLS, 4)
    engine = toy_engine(Fcfs(), kv)
    engine.add(toy_request("a", [1] * 100, "greedy", 100))
    while not engine.stats().output_tokens:
        engine.step()
    told = live_kv(kv.snapshot(), kv)
    assert told.cell == 3 and told.holders == ["a"]
    named = sum(cells for owner, users, cells in told.owners if (owner, users) == (1, 1))
    assert named == sum(cells for state, cells in told.runs if state == "held") > 8
    assert sum(cells for *_, cells in told.owners) == MAX_CELLS


def _in_full(steps: list[StepTrace]) -> list[StepTrace]:
    """The steps with what the console makes of `again`."""
    told: list[StepTrace] = []
    for step in steps:
        if step.again:
            before = told[-1]
            assert before.number == step.number - 1
            grants = [(id, tokens, phase, done + 1, of + 1) for id, tokens, phase, done, of in before.grants]
            step = msgspec.structs.replace(step, again=False, order=before.order, grants=grants)
        told.append(step)
    return told


@pytest.mark.parametrize("requests", [3, 6])
def test_steps_that_decode_the_same_again_are_told_by_a_word(requests: int) -> None:
    def steps(*, often: bool) -> list[StepTrace]:
        engine = toy_engine(Fcfs(), toy_kv(256, 4), slots=4)
        recorder, told = _watched(engine), list[StepTrace]()
        for _, request in _requests(requests, output=9):
            engine.add(request)
        while engine.busy:
            engine.step()
            if often:
                told += _news(engine, recorder).steps  # the first of a report is always told in full
        return told + _news(engine, recorder).steps

    together, each = steps(often=False), steps(often=True)
    assert not any(step.again for step in each)
    again = [step for step in together if step.again]
    assert len(again) >= 5 and not any(step.grants or step.order or step.thin for step in again)
    plain = [(step.number, step.tokens, step.rows, step.order, step.grants) for step in each]
    assert [(s.number, s.tokens, s.rows, s.order, s.grants) for s in _in_full(together)] == plain
