"""On random traces the engine admits, and evicts, whom each ranking policy's definition says, and when."""

from __future__ import annotations

import random

import pytest
from definitions import (
    Aged,
    HighestRatio,
    LeastLeft,
    MostUrgent,
    VirtualTokenCounter,
    retold,
    simulate,
)
from toy import expected, toy_kv
from traces import Machine, random_trace, serve

from turnout.plugins.schedulers.fair import Fair
from turnout.plugins.schedulers.hrrn import Hrrn
from turnout.plugins.schedulers.ljf import Ljf
from turnout.plugins.schedulers.priority import Priority
from turnout.plugins.schedulers.sjf import Sjf
from turnout.plugins.schedulers.srpt import Srpt

WEIGHTS = {"a": 4.0, "b": 0.5}

DEFINED = {
    "sjf": (lambda: Sjf(aging=0.5), lambda: Aged("predicted", 1, 0.5)),
    "sjf by prompt": (lambda: Sjf(by="prompt", aging=0), lambda: Aged("prompt", 1, 0)),
    "ljf": (lambda: Ljf(aging=0.5), lambda: Aged("predicted", -1, 0.5)),
    "srpt": (lambda: Srpt(aging=0.125), lambda: LeastLeft(0.125)),
    "srpt, not preemptive": (lambda: Srpt(0, preemptive=False), lambda: LeastLeft(0, preemptive=False)),
    "hrrn": (lambda: Hrrn(0.5), lambda: HighestRatio(0.5)),
    "priority": (Priority, MostUrgent),
    "fair": (Fair, VirtualTokenCounter),
    "fair, weighted": (lambda: Fair(weights=WEIGHTS), lambda: VirtualTokenCounter(WEIGHTS)),
}
PREEMPTIVE = ("srpt", "priority")
TRACES = [
    *(pytest.param(name, range(500), id=name) for name in PREEMPTIVE),
    *(pytest.param(name, range(100), id=name) for name in DEFINED if name not in PREEMPTIVE),
    *(
        pytest.param(name, range(100, 500), id=f"{name}, more", marks=pytest.mark.slow)
        for name in DEFINED
        if name not in PREEMPTIVE
    ),
]
"""All where requests are evicted, which few traces bring about."""


@pytest.mark.parametrize(("name", "trials"), TRACES)
def test_admissions_and_evictions_are_the_definitions(name, trials):
    make_policy, make_definition = DEFINED[name]
    evictions = 0
    for trial in trials:
        rng = random.Random(trial)
        trace, slots = random_trace(rng), rng.randint(1, 3)
        served = serve(make_policy(), trace, Machine(slots=slots))
        defined = simulate(make_definition(), trace, slots)
        for kind in ("admit", "preempt"):
            wanted = [(event.time, event.id) for event in defined if event.kind == kind]
            assert served.times(kind) == wanted, (trial, kind)
        assert all(served.outputs[spec.id] == expected(spec)[0] for spec in trace), trial
        evictions += len(served.times("preempt"))
    assert evictions > 20 if name in PREEMPTIVE else evictions == 0


@pytest.mark.parametrize("name", DEFINED)
def test_with_scarce_memory_no_request_is_admitted_out_of_turn_and_outputs_stay_the_same(name):
    make_policy, make_definition = DEFINED[name]
    preemptions = 0
    for trial in range(100):
        rng = random.Random(trial)
        trace = random_trace(rng)
        longest = max(len(spec.prompt) + spec.params.max_tokens for spec in trace)
        kv = toy_kv(longest + rng.randint(0, 12), 1, prefix_caching=rng.random() < 0.5)
        served = serve(make_policy(), trace, Machine(kv, slots=4, budget=rng.randint(3, 20)))
        for time, admitted, due in retold(make_definition(), served.journal, served.specs):
            assert admitted == due, (trial, time)
        assert all(served.outputs[spec.id] == expected(spec)[0] for spec in trace), trial
        assert kv.free == kv.capacity
        preemptions += len(served.times("preempt"))
    assert preemptions > 20, "the traces must exercise preemption"
