"""Runs a simulation for its figures: of each request only what they need is kept."""

from __future__ import annotations

import logging
from array import array
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from dataclasses import dataclass, field, replace
from multiprocessing import get_context
from typing import overload

import msgspec

from turnout.core.interfaces.router import Replica, Routable, Router
from turnout.core.process import exit_with_spawner
from turnout.core.registry.registry import Registry
from turnout.lab.jobs.job import Job
from turnout.lab.results.goodput import Goodput
from turnout.lab.results.record import Record
from turnout.lab.results.summary import Accumulator, Summary
from turnout.lab.simulation.fleet import Fleet, Mix
from turnout.lab.simulation.replica import Totals
from turnout.lab.simulation.runs.windows import WindowedFleet, windowed
from turnout.lab.simulation.simulate import Simulation
from turnout.lab.simulation.traffic import Traffic

__all__ = ["SimulationResult", "divisible", "simulate"]

logger = logging.getLogger(__name__)

Progress = Callable[[int], None]
"""Called with the number of further requests that have ended."""
TOLD = 1000
"""Requests between two calls of it."""
AHEAD = 4
"""Replicas for each process that are sent before the first of them is done."""


@dataclass
class SimulationResult:
    accumulator: Accumulator
    totals: Totals = field(default_factory=Totals)
    duration: float = 0.0
    """Seconds to the end of the last request."""
    first_failed: Record | None = None
    """Of the requests that failed, that which stands first in the workload."""

    @property
    def summary(self) -> Summary:
        return self.accumulator.summary(self.duration)

    def take(self, records: Iterable[Record], progress: Progress) -> None:
        untold = 0
        for record in records:
            self.accumulator.add(record)
            self.duration = max(self.duration, record.finished)
            self._note_failed(record if record.error else None)
            untold += 1
            if untold == TOLD:
                progress(untold)
                untold = 0
        progress(untold)

    def merge(self, other: SimulationResult) -> None:
        self.accumulator.merge(other.accumulator)
        self.totals += other.totals
        self.duration = max(self.duration, other.duration)
        self._note_failed(other.first_failed)

    def _note_failed(self, record: Record | None) -> None:
        if record and (self.first_failed is None or record.index < self.first_failed.index):
            self.first_failed = record


def simulate(
    simulation: Simulation,
    *,
    workers: int = 1,
    goodput: Goodput | None = None,
    progress: Progress = lambda ended: None,
) -> SimulationResult:
    """Runs it, in up to `workers` processes for its replicas; the figures are the same.

    Raises ConfigError for what cannot work.
    """
    outcome = SimulationResult(Accumulator(goodput))
    if workers > 1 and (why := _alone()):
        logger.warning("one process simulates, as several cannot share their work: %s", why)
        workers = 1
    registry = Registry.of(simulation.config)
    router = registry.create("router", simulation.router)
    if simulation.replicas == 1 or not divisible(simulation, router):
        if workers > 1 and windowed(simulation):
            _take_windowed(outcome, simulation, router, workers, progress)
        else:
            outcome.take(simulation.records(), progress)
            outcome.totals = simulation.totals
        return outcome
    shares = _shares(simulation, router)
    # One after the other, however many are at work: sums of floats depend on their order.
    for share, part in zip(shares, _parts(simulation, shares, workers, goodput), strict=True):
        outcome.merge(part)
        progress(len(share))
    return outcome


def _alone() -> str:
    """Why no pool of processes can be made, as where /dev/shm cannot be written; empty: it can."""
    try:
        get_context("spawn").Lock()
    except (OSError, ImportError) as error:
        return str(error)
    return ""


def divisible(simulation: Simulation, router: Router) -> bool:
    """Whether it is settled beforehand which replica serves what, and when, and no step is watched."""
    workload = simulation.workload
    if simulation.watch is not None or simulation.recording is not None:
        return False
    return not (router.watches or workload.concurrency or any(job.session for job in workload.jobs))


def _take_windowed(
    outcome: SimulationResult, simulation: Simulation, router: Router, workers: int, progress: Progress
) -> None:
    """The fleet in several processes, window by window."""
    fleet = WindowedFleet(simulation, router, workers)
    mix = Mix(simulation.workload, simulation.seed, simulation.cost.model.vocab_size)
    try:
        outcome.take(fleet.serve(Traffic(simulation.workload), mix), progress)
        outcome.totals = fleet.totals()
    finally:
        fleet.close()


def _parts(
    simulation: Simulation, shares: list[array[int]], workers: int, goodput: Goodput | None
) -> Iterator[SimulationResult]:
    """Of each replica."""
    jobs = simulation.workload.jobs
    # A replica gets its own jobs, so that no process has all of them but this one.
    alone = replace(simulation, workload=replace(simulation.workload, jobs=()))
    if workers == 1:
        registry = Registry.of(simulation.config)
        for number, share in enumerate(shares):
            yield _part(alone, registry, number, {index: jobs[index] for index in share}, goodput)
        return
    # Not by fork: a process that has threads, as torch starts them, cannot be copied safely.
    with ProcessPoolExecutor(workers, get_context("spawn"), _begin, (alone,)) as pool:
        parts = deque[Future[SimulationResult]]()
        try:
            for number, share in enumerate(shares):
                packed = msgspec.msgpack.encode({index: jobs[index] for index in share})
                parts.append(pool.submit(_part_of_mine, number, packed, goodput))
                if len(parts) > AHEAD * workers:
                    yield parts.popleft().result()
            while parts:
                yield parts.popleft().result()
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise


def _shares(simulation: Simulation, router: Router) -> list[array[int]]:
    """Indices of the jobs of each replica, in the order in which they are sent."""
    jobs, names = simulation.workload.jobs, simulation.names
    mix = Mix(simulation.workload, simulation.seed, simulation.cost.model.vocab_size)
    views = [Replica(name, 0, 0) for name in names]
    shares = [array("Q") for _ in names]
    for index in sorted(range(len(jobs)), key=lambda index: jobs[index].at):
        shares[router.route(mix.routable(index, _Prompt(mix, index)), views)].append(index)
    return shares


class _Prompt(Sequence[int]):
    """A prompt that is made once a router looks at it."""

    def __init__(self, mix: Mix, index: int) -> None:
        self._mix, self._index = mix, index
        self._made: list[int] | None = None

    def __len__(self) -> int:
        return self._mix.jobs[self._index].prompt

    @overload
    def __getitem__(self, at: int) -> int: ...
    @overload
    def __getitem__(self, at: slice) -> list[int]: ...
    def __getitem__(self, at: int | slice) -> int | list[int]:
        if self._made is None:
            self._made = self._mix.prompt(self._index)
        return self._made[at]


# ------------------------------------------------------------------ one replica, maybe in another process

_mine: list[tuple[Simulation, Registry]] = []
"""The simulation that this process works on: sent and loaded once, not with every part."""

Jobs = Mapping[int, Job]
"""Those of one replica, by their index in the workload."""


def _begin(simulation: Simulation) -> None:
    exit_with_spawner()
    _mine[:] = [(simulation, Registry.of(simulation.config))]


def _part_of_mine(number: int, packed: bytes, goodput: Goodput | None) -> SimulationResult:
    ((simulation, registry),) = _mine
    return _part(simulation, registry, number, msgspec.msgpack.decode(packed, type=dict[int, Job]), goodput)


def _part(
    simulation: Simulation, registry: Registry, number: int, jobs: Jobs, goodput: Goodput | None
) -> SimulationResult:
    """One replica, which serves its share of the jobs."""
    fleet = Fleet(
        simulation.config,
        simulation.cost,
        registry,
        _Only(),
        simulation.names[number : number + 1],
        fast_forward=simulation.fast_forward,
    )
    mix = Mix(simulation.workload, simulation.seed, simulation.cost.model.vocab_size, jobs)
    outcome = SimulationResult(Accumulator(goodput))
    outcome.take(fleet.serve(Traffic(simulation.workload, jobs), mix), lambda ended: None)
    outcome.totals = fleet.totals()
    return outcome


class _Only(Router):
    """A router for one replica."""

    def route(self, request: Routable, replicas: object) -> int:
        return 0
