"""Thousands of requests leave nothing behind: no KV memory, no request, no growth of the process.

One engine for each way of keeping and giving up KV memory. Policies take turns while it serves, its memory is
too small for all who are admitted, clients leave. ``pytest tests/soak -m slow -s`` serves 5,000 requests on
each and prints the memory that the process takes.
"""

from __future__ import annotations

import gc
from itertools import count
from pathlib import Path
from typing import Any

import psutil
import pytest
from traffic import Soak

from turnout.config import EngineConfig
from turnout.core.types.request import Request, RequestView, Sequence
from turnout.runner.assembly import AssembledEngine, build_engine
from turnout.testing.checks.memory_leaks import assert_all_memory_is_free

POSITION = 2 * 2 * 2 * 16 * 4
"""Bytes of a token's keys and values in the random model."""
SWAPPED = {"preemption": "swap", "swap_memory": 512 * POSITION}
ENGINES: dict[str, dict[str, Any]] = {
    "paged, computed again": {"kv": "paged", "preemption": "recompute"},
    "paged, swapped out": {"kv": "paged:block_size=8", "kv_eviction": "cost", **SWAPPED},
    "paged, either": {"kv": "paged:block_size=4", "kv_eviction": "lfu", **SWAPPED, "preemption": "auto"},
    "contiguous, computed again": {"kv": "contiguous", "preemption": "recompute"},
    "contiguous, swapped out": {"kv": "contiguous", **SWAPPED},
}


QUICK = ("paged, either", "contiguous, computed again")


@pytest.fixture(
    params=[
        pytest.param(options, id=name, marks=() if name in QUICK else pytest.mark.slow)
        for name, options in ENGINES.items()
    ]
)
def assembled(request: pytest.FixtureRequest, random_model: Path) -> AssembledEngine:
    config = EngineConfig(
        model=str(random_model),
        device="cpu",
        dtype="float32",
        kv_memory=448 * POSITION,
        max_model_len=160,
        max_num_seqs=12,
        max_num_batched_tokens=96,
        strict_plugins=True,
        **request.param,
    )
    ticks = count()
    return build_engine(config, clock=lambda: float(next(ticks)))


def test_nothing_is_left_of_some_requests(assembled: AssembledEngine) -> None:
    others, soak = living(), Soak(assembled, shift=5)
    soak.serve(13 * 5)
    assert_nothing_is_left(soak, others)


@pytest.mark.slow
@pytest.mark.timeout(0)
def test_memory_does_not_grow_with_thousands(assembled: AssembledEngine) -> None:
    others, soak, process = living(), Soak(assembled, shift=20), psutil.Process()
    soak.serve(500)
    before = process.memory_info().rss
    soak.serve(5000)
    after = process.memory_info().rss
    print(f"{before / 2**20:.1f} MiB after 500 requests, {after / 2**20:.1f} MiB after {soak.ended}")
    assert after < 1.02 * before
    assert_nothing_is_left(soak, others)


def assert_nothing_is_left(soak: Soak, others: list[object]) -> None:
    """`others`: requests that there were before, of other tests."""
    stats, kv = soak.engine.stats(), soak.engine.scheduler.kv
    print(f"{stats.preemptions} preemptions, {stats.swap_outs} swap_outs, {soak.aborted} aborted")
    assert stats.preemptions > soak.begun / 30 and soak.aborted, "requests hardly fought for memory"
    assert not soak.missing and not soak.engine.busy
    assert_all_memory_is_free(kv)
    soak.unpin()
    assert kv.snapshot().pinned == 0
    soak.assembled.set_scheduler("fcfs")  # another may remember who ran last until it is asked again
    gc.collect()
    assert not [each for each in living() if not any(each is other for other in others)]


def living() -> list[object]:
    """What there is of requests in this process."""
    return [each for each in gc.get_objects() if type(each) in (Request, Sequence, RequestView)]
