"""Runs a simulation for its figures: of each request only what they need is kept."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from multiprocessing import get_context

from turnout.core.interfaces.router import Replica, Routable, Router
from turnout.core.registry.registry import Registry
from turnout.lab.results.goodput import Goodput
from turnout.lab.results.record import Record
from turnout.lab.results.summary import Accumulator, Summary
from turnout.lab.simulation.fleet import Fleet, Mix
from turnout.lab.simulation.replica import Totals
from turnout.lab.simulation.simulate import Simulation
from turnout.lab.simulation.traffic import Traffic

__all__ = ["SimulationResult", "divisible", "simulate"]

Progress = Callable[[int], None]
"""Called with the number of further requests that have ended."""
TOLD = 1000
"""Requests between two calls of it."""


@dataclass
class SimulationResult:
    accumulator: Accumulator
    totals: Totals = field(default_factory=Totals)
    duration: float = 0.0
    """Seconds to the end of the last request."""

    @property
    def summary(self) -> Summary:
        return self.accumulator.summary(self.duration)

    def take(self, records: Iterable[Record], progress: Progress) -> None:
        untold = 0
        for record in records:
            self.accumulator.add(record)
            self.duration = max(self.duration, record.finished)
            untold += 1
            if untold == TOLD:
                progress(untold)
                untold = 0
        progress(untold)

    def merge(self, other: SimulationResult) -> None:
        self.accumulator.merge(other.accumulator)
        self.totals += other.totals
        self.duration = max(self.duration, other.duration)


def simulate(
    simulation: Simulation,
    *,
    workers: int = 1,
    goodput: Goodput | None = None,
    progress: Progress = lambda ended: None,
) -> SimulationResult:
    """Runs it, in up to `workers` processes where replicas are independent; the figures are the same.

    Raises ConfigError for what cannot work.
    """
    outcome = SimulationResult(Accumulator(goodput))
    registry = Registry.of(simulation.config)
    router = registry.create("router", simulation.router)
    if simulation.replicas == 1 or not divisible(simulation, router):
        outcome.take(simulation.records(), progress)
        outcome.totals = simulation.totals
        return outcome
    shares = _shares(simulation, router)
    # One after the other, however many are at work: sums of floats depend on their order.
    for share, part in zip(shares, _parts(simulation, shares, workers, goodput), strict=True):
        outcome.merge(part)
        progress(len(share))
    return outcome


def divisible(simulation: Simulation, router: Router) -> bool:
    """Whether it is settled beforehand which replica serves what, and when, and no step is watched."""
    workload = simulation.workload
    if simulation.watch is not None:
        return False
    return not (router.watches or workload.concurrency or any(job.session for job in workload.jobs))


def _parts(
    simulation: Simulation, shares: list[list[int]], workers: int, goodput: Goodput | None
) -> Iterator[SimulationResult]:
    """Of each replica."""
    if workers == 1:
        registry = Registry.of(simulation.config)
        yield from (
            _part(simulation, registry, number, share, goodput) for number, share in enumerate(shares)
        )
        return
    # Not by fork: a process that has threads, as torch starts them, cannot be copied safely.
    with ProcessPoolExecutor(workers, get_context("spawn"), _begin, (simulation,)) as pool:
        parts = [pool.submit(_part_of_mine, number, share, goodput) for number, share in enumerate(shares)]
        try:
            yield from (part.result() for part in parts)
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise


def _shares(simulation: Simulation, router: Router) -> list[list[int]]:
    """Indices of the jobs of each replica."""
    jobs, names = simulation.workload.jobs, simulation.names
    mix = Mix(simulation.workload, simulation.seed, simulation.cost.model.vocab_size)
    views = [Replica(name, 0, 0) for name in names]
    shares: list[list[int]] = [[] for _ in names]
    for index in sorted(range(len(jobs)), key=lambda index: jobs[index].at):
        shares[router.route(mix.routable(index, mix.prompt(index)), views)].append(index)
    return shares


# ------------------------------------------------------------------ one replica, maybe in another process

_mine: list[tuple[Simulation, Registry]] = []
"""The simulation that this process works on: sent and loaded once, not with every part."""


def _begin(simulation: Simulation) -> None:
    _mine[:] = [(simulation, Registry.of(simulation.config))]


def _part_of_mine(number: int, share: list[int], goodput: Goodput | None) -> SimulationResult:
    ((simulation, registry),) = _mine
    return _part(simulation, registry, number, share, goodput)


def _part(
    simulation: Simulation, registry: Registry, number: int, share: list[int], goodput: Goodput | None
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
    mix = Mix(simulation.workload, simulation.seed, simulation.cost.model.vocab_size)
    outcome = SimulationResult(Accumulator(goodput))
    outcome.take(fleet.serve(Traffic(simulation.workload, share), mix), lambda ended: None)
    outcome.totals = fleet.totals()
    return outcome


class _Only(Router):
    """A router for one replica."""

    def route(self, request: Routable, replicas: object) -> int:
        return 0
