"""Random workloads on caches that check every call: outputs are brute force's, and the books are right."""

from __future__ import annotations

import random

import pytest
from audit import AuditedContiguous, AuditedPaged, AuditingRunner
from random_serving import Priority, ShortestFirst
from toy import drive, expected, toy_engine

from turnout.core.interfaces.kv import PoolSize
from turnout.plugins.evictions.cost import Cost
from turnout.plugins.evictions.lfu import Lfu
from turnout.plugins.evictions.lru import Lru
from turnout.plugins.kv_backends.paged.host.kv_groups import most_blocks
from turnout.plugins.schedulers.fcfs import Fcfs
from turnout.testing.checks.memory_leaks import assert_all_memory_is_free
from turnout.testing.toy.workloads import random_preemption, random_workload

STEP_OF_WINDOWS = 23
"""The largest budget that is drawn."""


def audited_paged(rng, needs, kind=AuditedPaged):
    size, eviction = rng.choice([1, 2, 4, 8]), rng.choice([Lru(), Lfu(), Cost(context=4)])
    blocks = max(n * -(-length // size) for n, length in needs) + rng.randrange(0, 4)
    pool = PoolSize(blocks * size, rng.choice([0, rng.randrange(60), 1000]))
    kv = kind(pool, size, eviction, prefix_caching=rng.random() < 0.8)
    if kv.prefixes and blocks > 2 and rng.random() < 0.3:
        kv.prefixes.pin("some", [rng.randrange(1, 7) for _ in range(size)], "")
    return kv


class Early(AuditedPaged):
    """Starts are anywhere below what is cached, as they are for requests that want cached tokens scored."""

    def cached(self, sequence):
        found = super().cached(sequence)
        rng = random.Random(f"{sequence.request.id} {sequence.index} {found}")
        return rng.randrange(found + 1) if rng.random() < 0.3 else found


def audited_early(rng, needs):
    return audited_paged(rng, needs, Early)


def audited_windows(rng, needs):
    """Memory for what windows keep of the most demanding request, and hardly more."""
    size, windows = rng.choice([1, 2, 4]), (None, *rng.choices([2, 3, 5, 9], k=rng.randrange(1, 3)))
    step = STEP_OF_WINDOWS
    positions = [
        n * -(-sum(most_blocks(length, window, size, step) for window in windows) // len(windows)) * size
        for n, length in needs
    ]
    pool = PoolSize(max(positions) + rng.randrange(4) * size, rng.choice([0, rng.randrange(60), 1000]), step)
    eviction = rng.choice([Lru(), Lfu(), Cost(context=4)])
    return AuditedPaged(pool, size, eviction, prefix_caching=rng.random() < 0.8, windows=windows)


def audited_contiguous(rng, needs):
    most = max(n * length for n, length in needs)
    return AuditedContiguous(PoolSize(most + rng.randrange(20), rng.choice([0, rng.randrange(60), 1000])))


@pytest.mark.parametrize("make_kv", [audited_paged, audited_early, audited_windows, audited_contiguous])
def test_every_call_does_what_it_says_and_every_snapshot_is_a_recount(make_kv, monkeypatch) -> None:
    monkeypatch.setattr("turnout.plugins.kv_backends.paged.host.kv_groups.READ_TOGETHER", 1)
    swap_outs = shared = cached = 0
    for trial in range(60):
        rng = random.Random(trial)
        arrivals = list(random_workload(rng))
        needs = [(spec.params.n, len(spec.prompt) + spec.params.max_tokens) for _, spec in arrivals]
        kv = make_kv(rng, needs)
        policy, preemption = rng.choice([Fcfs, Priority, ShortestFirst])(), random_preemption(rng)
        budget, slots = rng.randrange(5, 24), rng.randrange(4, 8)
        engine = toy_engine(policy, kv, budget=budget, slots=slots, preemption=preemption)
        engine.runner = AuditingRunner(kv)
        engine.runner.engine = engine
        outcome = drive(engine, arrivals)
        for _, spec in arrivals:
            assert outcome.outputs(spec.id) == expected(spec), (trial, spec)
        assert_all_memory_is_free(kv)
        engine.runner.check()
        swap_outs += engine.stats().swap_outs
        shared += kv.snapshot().hits
        cached += kv.snapshot().cached
    assert swap_outs > 3
    assert (shared > 100 and cached > 100) or make_kv is audited_contiguous
