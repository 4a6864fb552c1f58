"""Routers of a simulated fleet know what those of a live one would: a step's blocks when it has ended."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from simulations import machine

from turnout.config import EngineConfig
from turnout.core.interfaces.router import Replica, Routable, Router
from turnout.core.registry.registry import Registry
from turnout.core.types.messages import STATS_SECONDS
from turnout.lab.jobs.job import Job, Workload
from turnout.lab.simulation.fleet import Fleet, Mix
from turnout.lab.simulation.traffic import Traffic

STEP = 0.1
"""Seconds."""


@dataclass(frozen=True)
class Seen:
    cached: Mapping[str, int]
    waiting: int
    kv_use: float


class Watching(Router):
    """Sends everything to the first replica, and remembers what it saw of it."""

    reads_caches = True

    def __init__(self) -> None:
        self.seen: list[Seen] = []

    def route(self, request: Routable, replicas: Sequence[Replica]) -> int:
        first = replicas[0]
        self.seen.append(Seen(first.find(request), first.waiting, first.kv_use))
        return 0


def seen(jobs: list[Job], **options: int) -> list[Seen]:
    router, work = Watching(), Workload("w", jobs)
    fleet = Fleet(EngineConfig(**options), machine(fixed=STEP), Registry.load(), router, ["a", "b"])
    list(fleet.serve(Traffic(work), Mix(work, 0, 1000)))
    return router.seen


def test_blocks_are_known_when_the_step_that_filled_them_has_ended() -> None:
    prompt = {"prompt": 100, "blocks": (1,), "block_size": 96}
    times = (0.0, 0.9 * STEP, 1.1 * STEP)
    first, during, after = seen([Job(at, output=8, **prompt) for at in times])  # type: ignore[arg-type]
    assert not first.cached and not during.cached
    assert after.cached.keys() == {"a"} and after.cached["a"] >= 64


def test_load_is_known_once_in_a_while() -> None:
    """The report of the first step, which one request took, is the last one for a while."""
    long = [Job(0.01 * number, 50, 40) for number in range(5)]
    looks = [
        Job(at, 1, 1) for at in (1.5 * STEP, STEP + 0.9 * STATS_SECONDS, STEP + STATS_SECONDS + 1.1 * STEP)
    ]
    *_, first, same, later = seen(long + looks, max_num_seqs=2)
    assert first.waiting == 0 and first.kv_use > 0
    assert (same.waiting, same.kv_use) == (first.waiting, first.kv_use)
    assert later.waiting >= 3 and later.kv_use > first.kv_use


def test_an_engine_without_work_tells_its_load_at_last() -> None:
    *_, told = seen([Job(0.0, 50, 3), Job(3 * STEP + 2 * STATS_SECONDS, 1, 1)])
    assert told.kv_use == 0
