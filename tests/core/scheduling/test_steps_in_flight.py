"""Steps of a pipeline: the next ones are planned while others are on their way, each for other requests."""

from __future__ import annotations

import random
from collections import Counter, deque

import pytest
from random_serving import POLICIES, StaticBatch, served
from toy import ToyRunner, drive, expected, toy_engine, toy_kv, toy_request

from turnout.core.interfaces.observers import WatchingHook
from turnout.core.interfaces.scheduling import Drop, SchedulingPolicy
from turnout.plugins.schedulers.fcfs import Fcfs
from turnout.testing.checks.memory_leaks import assert_all_memory_is_free
from turnout.testing.toy.workloads import random_cache, random_preemption, random_workload

PROMPT = [1, 2, 3, 4, 5]


class Stages(ToyRunner):
    """Computes plans in order, and keeps what they give until it is asked; notes who is in each."""

    def __init__(self, kv, stages: int = 2) -> None:
        super().__init__(kv)
        self.stages = stages
        self.begun = deque()
        self.depths = Counter()
        self.plans = []

    def begin(self, plan):
        requests = {chunk.sequence.request.id: chunk.rows for chunk in plan.chunks}
        for there, _ in self.begun:
            awaited = {name for name, rows in there.items() if rows}
            assert not awaited & requests.keys(), "it waits for its token"
        self.begun.append((requests, self.run(plan)))
        self.plans.append(requests)
        self.depths[len(self.begun)] += 1
        assert len(self.begun) <= self.stages

    def finish(self):
        return self.begun.popleft()[1]


def pipelined(policy=None, kv=None, stages: int = 2, **options):
    kv = kv or toy_kv(64, 4)
    return toy_engine(policy or Fcfs(), kv, pipeline=Stages(kv, stages), **options)


@pytest.mark.parametrize(
    ("policy", "stages"),
    [
        pytest.param(
            policy,
            stages,
            id=f"{policy.__name__}-{stages}",
            marks=[] if stages == 2 + number % 2 else [pytest.mark.slow],
        )
        for number, policy in enumerate(POLICIES)
        for stages in (2, 3)
    ],
)
def test_outputs_equal_brute_force_whatever_is_in_flight(policy, stages):
    preemptions, depths = 0, Counter()
    for engine in served(policy, 40, make=lambda *given, **more: pipelined(*given, stages=stages, **more)):
        preemptions += engine.stats().preemptions
        depths += engine.runner.depths
    # The share that a static batch admits at once is small, and has room.
    assert preemptions > 0 or policy is StaticBatch, "the workloads must exercise preemption"
    assert depths[stages] > 0, "stages must be busy at the same time"


@pytest.mark.parametrize("seed", range(60))
def test_clients_that_leave_while_their_step_is_in_flight_harm_no_others(seed):
    rng = random.Random(seed)
    arrivals = list(random_workload(rng))
    kv = random_cache(rng, arrivals)
    engine = pipelined(kv=kv, budget=rng.randrange(5, 24), preemption=random_preemption(rng))
    todo, left, found = sorted(arrivals, key=lambda a: a[0]), set(), {}
    for step in range(2000):
        while todo and todo[0][0] <= step:
            engine.add(todo.pop(0)[1])
        if rng.random() < 0.2:
            name = rng.choice(arrivals)[1].id
            engine.abort(name)
            left.add(name)
        for delta in engine.step():
            found.setdefault(delta.request_id, {}).setdefault(delta.index, []).extend(delta.tokens)
        if not todo and not engine.busy:
            break
    assert not todo
    assert not engine.busy
    assert_all_memory_is_free(kv)
    for _, spec in arrivals:
        if spec.id not in left:
            assert sorted(found[spec.id].values()) == expected(spec)


def test_each_step_takes_its_share_of_the_requests():
    engine = pipelined(kv=toy_kv(200, 4), budget=200, slots=16)
    outcome = drive(engine, [(0, toy_request(f"r{at}", PROMPT, "greedy", 8)) for at in range(8)])
    assert len(outcome.tokens) == 8
    first, second = engine.runner.plans[:2]
    assert (len(first), len(second)) == (4, 4)
    assert not first.keys() & second.keys()


def test_a_long_prompt_keeps_all_stages_busy_by_itself():
    engine = pipelined(budget=8)
    drive(engine, [(0, toy_request("long", [1 + at % 6 for at in range(40)], "greedy", 2))])
    assert engine.runner.depths[2] >= 4, "its next part begins while one is on its way"


class Drops(SchedulingPolicy):
    """Drops a request while its step is in flight."""

    def order(self, view):
        for request in view.running:
            if request.id == "b" and request.output_tokens >= 2:
                yield Drop(request, "too late")
            else:
                yield request
        yield from view.waiting


def test_a_request_that_is_dropped_in_flight_is_gone():
    kv = toy_kv(64, 4)
    engine = pipelined(Drops(), kv)
    outcome = drive(engine, [(0, toy_request(name, PROMPT, "greedy", 12)) for name in "abc"], errors=True)
    assert outcome.errors == {"b": "too late"}
    assert outcome.outputs("a") == expected(toy_request("a", PROMPT, "greedy", 12))
    assert_all_memory_is_free(kv)


def test_an_engine_is_busy_until_its_last_step_is_through():
    engine = pipelined()
    engine.add(toy_request("a", PROMPT, "greedy", 12))
    assert engine.step() == []
    engine.abort("a")
    assert engine.busy
    assert engine.step() == []
    assert not engine.busy
    assert not engine.runner.begun


def test_a_steps_record_has_the_number_of_that_step():
    """It had that of the step that had begun last, so that numbers were left out and came twice."""
    records, engine = [], pipelined(stages=3)
    engine._observers.watch_steps(WatchingHook("test", lambda step: records.append(step)))
    drive(engine, [(0, toy_request(f"r{i}", PROMPT, "greedy", 5 + i)) for i in range(5)])
    assert max(engine._pipeline.depths) == 3
    assert [record.number for record in records] == list(range(1, engine.stats().steps + 1))
    assert [record.started for record in records] == sorted({record.started for record in records})
