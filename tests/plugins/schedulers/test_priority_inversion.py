"""Under `priority` no request waits for slots or memory while a less urgent one runs."""

from __future__ import annotations

import random
from itertools import product

import pytest
from toy import expected, toy_kv
from traces import Machine, Served, job, random_trace, serve

from turnout.core.engine.engine import Engine
from turnout.plugins.schedulers.priority import Priority


class Watch:
    """Looks for requests that wait while less urgent ones run."""

    def __init__(self) -> None:
        self.inverted: set[tuple[str, str]] = set()
        self.preemptions = 0

    def __call__(self, engine: Engine, served: Served) -> None:
        before, self.inverted = self.inverted, self.inversions(engine)
        # Whom a preemption sends away waits for that step, and so does who would come while room is made.
        assert not self.inverted or engine.stats().preemptions > self.preemptions
        assert not before & self.inverted, "an inversion lasts"
        self.preemptions = engine.stats().preemptions

    def inversions(self, engine: Engine) -> set[tuple[str, str]]:
        queues = engine.scheduler.queues
        pairs = product(queues.waiting, queues.running)
        return {(one.id, other.id) for one, other in pairs if one.spec.priority < other.spec.priority}


def test_an_urgent_request_takes_a_slot_when_all_are_full():
    crowd = [job(f"r{i}", 0.0, tokens=20, exact=True, priority=1 + i) for i in range(3)]
    late = [job("urgent", 4.0, priority=0, exact=True), job("same", 4.0, priority=2, exact=True)]
    served = serve(Priority(), [*crowd, *late], Machine(slots=3))
    assert served.times("preempt") == [(4.0, "r2")], "the least urgent gives way, and to strictly more urgent"
    assert served.ttft("urgent") == 0
    assert served.first_tokens["same"] > served.finished["urgent"]


def test_an_urgent_request_takes_the_memory_it_needs_when_all_is_full():
    crowd = [job(f"r{i}", 0.0, 8, 12, exact=True, priority=1 + i) for i in range(3)]
    urgent = job("urgent", 2.0, 30, 4, exact=True, priority=0)
    served = serve(Priority(), [*crowd, urgent], Machine(toy_kv(36, 1, prefix_caching=False), slots=9))
    assert served.ttft("urgent") == 0
    assert {name for time, name in served.times("preempt") if time == 2.0} == {"r0", "r1", "r2"}


@pytest.mark.parametrize("scarce", ["slots", "memory"])
def test_no_inversion_and_no_livelock_on_random_traces(scarce):
    preemptions = 0
    for trial in range(250):
        rng = random.Random(trial)
        trace = random_trace(rng, most=10)
        longest = max(len(spec.prompt) + spec.params.max_tokens for spec in trace)
        kv = toy_kv(longest + rng.randint(0, 8) if scarce == "memory" else 400, 1)
        machine = Machine(kv, slots=2 if scarce == "slots" else 10, budget=longest)
        watch = Watch()
        served = serve(Priority(), trace, machine, watch=watch)
        assert all(served.outputs[spec.id] == expected(spec)[0] for spec in trace), trial
        preemptions += watch.preemptions
    assert preemptions > 100
