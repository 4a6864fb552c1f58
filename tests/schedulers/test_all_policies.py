"""Every policy on offer, on random workloads: brute force's outputs, no leak, no fault, no chance."""

from __future__ import annotations

import random
from dataclasses import dataclass

import msgspec
import pytest
from test_mechanism_against_brute_force import (
    assert_all_memory_is_free,
    random_cache,
    random_preemption,
    random_workload,
)
from toy import Outcome, drive, expected, toy_engine

from turnout.core.engine import Engine
from turnout.core.interfaces import KVCache
from turnout.core.plugins import Registry
from turnout.core.policy import SchedulingPolicy
from turnout.core.preemption import Preemption
from turnout.core.request import RequestSpec

TRIALS = 40
REGISTRY = Registry.load()

POLICIES = [
    *REGISTRY.names("scheduler"),
    # Small enough that workloads of a few tokens reach what they limit.
    "deadline:hopeless=last",
    "lpm:max_wait=5,max_queue=3",
    "mlfq:quantum=2,levels=3,starve_limit=9",
    "sarathi:chunk=1",
    "static:size=2",
]


def build(spec: str) -> SchedulingPolicy:
    return REGISTRY.create("scheduler", spec)


@dataclass
class Trial:
    """A workload and a machine that it barely fits."""

    arrivals: list[tuple[int, RequestSpec]]
    kv: KVCache
    budget: int
    slots: int
    preemption: Preemption
    deadlines: float

    @classmethod
    def draw(cls, seed: int, deadlines: float) -> Trial:
        rng = random.Random(seed)
        arrivals = [(step, _signed(spec, rng, deadlines)) for step, spec in random_workload(rng)]
        kv, budget, slots = random_cache(rng, arrivals), rng.randrange(5, 24), rng.randrange(4, 8)
        return cls(arrivals, kv, budget, slots, random_preemption(rng), deadlines)

    def engine(self, policy: SchedulingPolicy) -> Engine:
        machine = {"budget": self.budget, "slots": self.slots, "preemption": self.preemption}
        return toy_engine(policy, self.kv, strict=True, **machine)

    def check(self, engine: Engine, outcome: Outcome) -> None:
        for _, spec in self.arrivals:
            assert outcome.outputs(spec.id) == expected(spec), spec
            assert len(outcome.finished[spec.id]) == spec.params.n
        assert_all_memory_is_free(self.kv)
        assert engine.stats().policy_faults == 0


def _signed(spec: RequestSpec, rng: random.Random, deadlines: float) -> RequestSpec:
    """With a client and deadlines."""
    return msgspec.structs.replace(
        spec,
        client=rng.choice(["", "a", "b"]),
        deadline=rng.choice([None, deadlines * rng.uniform(0.1, 1)]),
        ttft_deadline=rng.choice([None, deadlines * rng.uniform(0.1, 1)]),
    )


def deadlines_of(policy: str) -> float:
    """Near ones where the hopeless are served too, else none that could pass."""
    return 30.0 if policy.endswith("last") else 1e6


@pytest.mark.parametrize("policy", POLICIES)
def test_outputs_are_brute_forces_and_nothing_leaks(policy):
    preemptions = 0
    for seed in range(TRIALS):
        trial = Trial.draw(seed, deadlines_of(policy))
        engine = trial.engine(build(policy))
        trial.check(engine, drive(engine, trial.arrivals))
        preemptions += engine.stats().preemptions
    assert preemptions, "the workloads must exercise preemption"


@pytest.mark.parametrize("policy", POLICIES)
def test_the_same_workload_is_planned_the_same_way(policy):
    def plans(seed: int) -> list[tuple[str, int, int, int]]:
        trial = Trial.draw(seed, deadlines_of(policy))
        engine, seen = trial.engine(build(policy)), []
        run = engine.runner.run

        def noting(plan):
            seen.extend((c.sequence.request.id, c.sequence.index, c.start, c.end) for c in plan.chunks)
            return run(plan)

        engine.runner.run = noting
        drive(engine, trial.arrivals)
        return seen

    for seed in range(8):
        assert plans(seed) == plans(seed)


def test_policies_may_take_turns_under_load():
    for seed in range(TRIALS):
        rng = random.Random(seed)
        trial = Trial.draw(seed, deadlines=1e6)
        engine = trial.engine(build("fcfs"))
        step = engine.step

        def switching(engine=engine, step=step, rng=rng):
            if rng.random() < 0.3:
                engine.scheduler.policy = build(rng.choice(POLICIES))
            return step()

        engine.step = switching
        trial.check(engine, drive(engine, trial.arrivals))
