"""A workload, served by as many engines as there should be, on a virtual clock."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from turnout.config import EngineConfig
from turnout.core.errors import ConfigError
from turnout.core.registry.registry import Registry
from turnout.lab.jobs.job import Workload
from turnout.lab.results.record import Record
from turnout.lab.simulation.cost import CostModel
from turnout.lab.simulation.fleet import Fleet, Mix
from turnout.lab.simulation.recording import Recording
from turnout.lab.simulation.replica import StepWatch, Totals
from turnout.lab.simulation.traffic import Traffic

__all__ = ["Simulation", "run_simulated"]


@dataclass
class Simulation:
    """What to simulate; `records` runs it."""

    config: EngineConfig
    """The server's own; what it says of model, device, dtype and quantization is the cost model's to say."""
    workload: Workload
    cost: CostModel
    seed: int = 0
    """Of prompts and outputs."""
    replicas: int = 1
    router: str = "round-robin"
    """As NAME or NAME:option=value,…."""
    fast_forward: bool = True
    """Skip what happens in every step, where that changes no result (`fast_forward.py`)."""
    watch: StepWatch | None = None
    """Told of every step of every replica."""
    recording: Recording | None = None
    """Records all engines, with no step skipped."""

    def __post_init__(self) -> None:
        if self.replicas < 1:
            raise ConfigError(f"replicas must be at least 1, not {self.replicas}")
        self.totals = Totals()
        """Complete when all records are out."""

    @property
    def names(self) -> list[str]:
        """Of the replicas."""
        return [f"replica-{number}" for number in range(self.replicas)]

    def records(self) -> Iterator[Record]:
        """In the order in which requests end.

        What is done with one is forgotten: a million take no more memory than those that are served at once.
        """
        registry = Registry.of(self.config)
        router = registry.create("router", self.router)
        fleet = Fleet(
            self.config,
            self.cost,
            registry,
            router,
            self.names,
            fast_forward=self.fast_forward and self.recording is None,
            watch=self.watch,
            recording=self.recording,
        )
        mix = Mix(self.workload, self.seed, self.cost.model.vocab_size)
        yield from fleet.serve(Traffic(self.workload), mix)
        self.totals = fleet.totals()


def run_simulated(config: EngineConfig, workload: Workload, cost: CostModel, *, seed: int) -> list[Record]:
    """One engine of `config` serves `workload` in simulation: a record for each job, in the workload's order.

    The same engine, scheduler, policies and KV bookkeeping as are served, on a virtual clock; equal arguments
    give equal records. Raises ConfigError for what cannot work and for what is not simulated (speculation).
    """
    records = Simulation(config, workload, cost, seed).records()
    return sorted(records, key=lambda record: record.index)
