"""The policy may change between any two steps: nothing is lost, and outputs are brute force's."""

from __future__ import annotations

import random

import pytest
from random_serving import POLICIES
from toy import drive, expected, toy_engine, toy_kv, toy_request

from turnout.core.interfaces.scheduling import SchedulingPolicy
from turnout.core.registry.registry import Registry
from turnout.plugins.schedulers.fcfs import Fcfs
from turnout.testing.checks.memory_leaks import assert_all_memory_is_free
from turnout.testing.toy.workloads import random_cache, random_preemption, random_workload


class Mistaken(SchedulingPolicy):
    def order(self, view):
        return ["nobody"]


def test_outputs_do_not_tell_that_policies_changed(monkeypatch: pytest.MonkeyPatch) -> None:
    switches = preemptions = 0
    for trial in range(80):
        rng = random.Random(trial)
        arrivals = list(random_workload(rng))
        kv, preemption = random_cache(rng, arrivals), random_preemption(rng)
        budget, slots = rng.randrange(5, 24), rng.randrange(4, 8)
        engine = toy_engine(Fcfs(), kv, budget=budget, slots=slots, preemption=preemption)
        step = engine.step

        def switch_and_step(rng=rng, engine=engine, step=step):
            nonlocal switches
            if rng.random() < 0.4:
                engine.scheduler.policy = rng.choice(POLICIES)()
                switches += 1
            return step()

        monkeypatch.setattr(engine, "step", switch_and_step)
        outcome = drive(engine, arrivals)
        for _, spec in arrivals:
            assert outcome.outputs(spec.id) == expected(spec), (trial, spec)
            assert len(outcome.finished[spec.id]) == spec.params.n
        assert_all_memory_is_free(kv)
        preemptions += engine.stats().preemptions
    assert switches > 500 and preemptions > 5


@pytest.mark.parametrize("name", sorted(Registry.load().names("scheduler")))
def test_a_policy_may_be_told_of_a_request_before_it_sees_any(name: str) -> None:
    """Of one whose step was in flight in a pipeline when the policy changed: a KeyError of `mlfq`."""
    kv = toy_kv(32, 4)
    engine = toy_engine(Fcfs(), kv, strict=True)
    engine.add(toy_request("r", [1, 2, 3], "greedy", 3))
    engine.step()
    engine.scheduler.policy = Registry.load().create("scheduler", name)
    for request in engine.scheduler.queues.running:
        engine.scheduler.observe(request, 1, engine.clock())
    while engine.busy:
        engine.step()
    assert_all_memory_is_free(kv)


def test_faults_are_counted_across_policies() -> None:
    engine = toy_engine(Mistaken(), toy_kv(32, 4), strict=False)
    engine.add(toy_request("r", [1, 2, 3], "greedy", 30))
    for _ in range(2):
        engine.step()
    assert engine.stats().policy_faults == 2
    engine.scheduler.policy = Fcfs()
    engine.step()
    assert engine.stats().policy_faults == 2
    engine.scheduler.policy = Mistaken()
    engine.step()
    assert engine.stats().policy_faults == 3
