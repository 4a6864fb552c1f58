"""Passing over what happens in every step changes nothing but how long a simulation takes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from simulations import conversations, jobs, machine, sharing, simulation_of

from turnout.config import EngineConfig
from turnout.core.interfaces.kv import Span
from turnout.core.interfaces.observers import StepRecord
from turnout.core.registry.registry import Registry
from turnout.core.types.request import Request
from turnout.lab.jobs.job import Job, Workload
from turnout.lab.results.record import Record
from turnout.lab.simulation import Simulation
from turnout.lab.simulation.assembly import build_simulated
from turnout.lab.simulation.fast_forward import can_fast_forward
from turnout.lab.simulation.fleet import Mix
from turnout.lab.simulation.replica import SimulatedReplica

FAST_FORWARD = ["fcfs", "hrrn", "ljf", "lpm", "sarathi", "sjf"]
STEP = ["deadline", "fair", "mlfq", "prefill-first", "priority", "srpt", "static"]


def both(work: list[Job], **options: Any) -> None:
    fast, slow = (simulation_of(work, fast_forward=fast_forward, **options) for fast_forward in (True, False))
    seen: tuple[list[StepRecord], list[StepRecord]] = ([], [])
    fast.watch, slow.watch = seen[0].append, seen[1].append
    records = list(slow.records())
    assert list(fast.records()) == records
    assert fast.totals == slow.totals
    assert seen[0] == seen[1] and len(seen[0]) == fast.totals.steps
    fast.watch = None  # steps that nobody watches are quicker still
    assert list(fast.records()) == records
    assert fast.totals == slow.totals


@pytest.mark.parametrize(
    "scheduler",
    [
        *("fcfs", "lpm", "sarathi", "sjf"),
        *[
            pytest.param(spec, marks=pytest.mark.slow)
            for spec in ("hrrn", "ljf", "sarathi:chunk=32", "lpm:max_queue=3", "ljf:aging=0")
        ],
    ],
)
@pytest.mark.parametrize(
    "options",
    [
        pytest.param({}, id="room for all", marks=pytest.mark.slow),
        pytest.param({"pool": 1040, "max_num_seqs": 8}, id="slots short", marks=pytest.mark.slow),
        pytest.param({"pool": 1040}, id="memory short"),
        pytest.param({"pool": 1040, "kv": "contiguous"}, id="contiguous", marks=pytest.mark.slow),
        pytest.param(
            {"pool": 1040, "kv": "paged:prefix_caching=false"}, id="no prefixes", marks=pytest.mark.slow
        ),
        pytest.param({"max_num_batched_tokens": 24, "max_num_seqs": 40}, id="budget short"),
    ],
)
def test_records_are_the_same(scheduler: str, options: dict[str, Any]) -> None:
    both(sharing(40, 60.0), scheduler=scheduler, **options)


@pytest.mark.slow
@pytest.mark.parametrize("scheduler", ["fcfs", "lpm"])
def test_records_are_the_same_where_every_token_ends_a_block(scheduler: str) -> None:
    """One policy that never looks at memory, and the one that does: the others see nothing of blocks."""
    both(sharing(40, 60.0), scheduler=scheduler, pool=1040, block_size=1)


def test_records_are_the_same_where_memory_is_swapped_out() -> None:
    both(jobs(60, 100.0), pool=1040, preemption="swap", swap_memory=8 * 2**20)


def test_records_are_the_same_with_replicas_and_sessions() -> None:
    both(conversations(20, 5), replicas=3, router="least-loaded")
    both(conversations(20, 5), concurrency=4, replicas=2, router="session-affinity")


def test_records_are_the_same_where_many_things_happen_at_one_time() -> None:
    """Replicas that do the same at the same time, to the last bit, take turns as they do step by step."""
    work = [Job(0.05 * (number // 8), 60, 40) for number in range(64)]
    both(work, replicas=4, router="least-loaded")
    both(work, concurrency=6, replicas=3, router="score")


def test_records_are_the_same_where_a_step_computes_the_last_token_of_a_prompt_alone() -> None:
    """Such a step begins an answer, which takes `Seconds.request`; fast-forwarded, it took none of that."""
    config, cost = EngineConfig(max_num_batched_tokens=8), machine(fixed=2e-3, request=1e-3)
    work = Workload("test", [Job(0.0, 9, 20), Job(0.5, 17, 20)])
    fast, slow = (Simulation(config, work, cost, fast_forward=each) for each in (True, False))
    assert list(fast.records()) == list(slow.records())


def test_memory_that_is_short_was_short() -> None:
    """What the tests above rest on."""
    simulation = simulation_of(sharing(40, 60.0), pool=1040)
    list(simulation.records())
    assert simulation.totals.preemptions > 5


def test_a_step_costs_what_changes_in_it() -> None:
    """Else a million requests would take hours: each is looked at once in a block, not in every step."""

    def looked_at(fast_forward: bool) -> int:
        simulated = build_simulated(EngineConfig(), machine(1 << 16), Registry.load())
        replica, count = SimulatedReplica(simulated, fast_forward=fast_forward), 0
        scheduler = simulated.engine.scheduler
        observe, reserve = scheduler.observe, scheduler.kv.reserve

        def observed(request: Request, tokens: int, now: float) -> None:
            nonlocal count
            count += 1
            observe(request, tokens, now)

        def reserved(spans: Sequence[Span]) -> bool:
            nonlocal count
            count += 1
            return reserve(spans)

        scheduler.observe, scheduler.kv.reserve = observed, reserved
        mix = Mix(Workload("w", [Job(0.0, 32, 320)] * 40), 0, 1000)
        for index in range(40):
            replica.add(mix.spec(index), Record(mix.jobs[index], index, 0.0, 0.0))
        while replica.busy:
            replica.step()
        return count

    assert looked_at(False) >= 40 * 320
    assert looked_at(True) <= 40 * (320 / 16 + 4)


@pytest.mark.parametrize("scheduler", [*FAST_FORWARD, *STEP])
def test_only_where_the_policy_says_so(scheduler: str) -> None:
    simulated = build_simulated(EngineConfig(scheduler=scheduler), machine(), Registry.load())
    assert can_fast_forward(simulated) == (scheduler in FAST_FORWARD)


def test_all_policies_are_accounted_for() -> None:
    assert sorted([*FAST_FORWARD, *STEP]) == Registry.load().names("scheduler")


@pytest.mark.parametrize("scheduler", STEP)
def test_other_policies_are_simulated_step_by_step(scheduler: str) -> None:
    both(jobs(20, 50.0), scheduler=scheduler, pool=1040)
