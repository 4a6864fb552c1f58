"""Policies take turns under load, whichever they are: brute force's outputs, no leak, no fault.

What each does on its own, tests/testing/suites says.
"""

from __future__ import annotations

import random

from toy import drive, expected

from turnout.core.interfaces.scheduling import SchedulingPolicy
from turnout.core.registry.registry import Registry
from turnout.testing.checks.memory_leaks import assert_all_memory_is_free
from turnout.testing.toy.workloads import RandomCase

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


def test_policies_may_take_turns_under_load():
    for seed in range(TRIALS):
        rng = random.Random(seed)
        trial = RandomCase.draw(seed)
        engine = trial.engine(build("fcfs"))
        step = engine.step

        def switching(engine=engine, step=step, rng=rng):
            if rng.random() < 0.3:
                engine.scheduler.policy = build(rng.choice(POLICIES))
            return step()

        engine.step = switching
        outcome = drive(engine, trial.arrivals)
        for _, spec in trial.arrivals:
            assert outcome.outputs(spec.id) == expected(spec), spec
        assert_all_memory_is_free(trial.kv)
        assert engine.stats().policy_faults == 0
