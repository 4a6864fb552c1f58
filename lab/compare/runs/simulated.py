"""Runs in simulation: the same arms on a virtual clock."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from turnout.core.errors import ConfigError
from turnout.core.interfaces.observers import StepRecord
from turnout.lab.compare.runs.child import RunWatch
from turnout.lab.compare.runs.experiment_spec import ExperimentSpec
from turnout.lab.compare.runs.order import Turn
from turnout.lab.compare.runs.run import EngineSample, Run
from turnout.lab.compare.runs.samples import EngineSamples
from turnout.lab.simulation import CostModel, Simulation
from turnout.lab.simulation.recording import Recording, write_trace
from turnout.lab.workloads.source import load_workload

__all__ = ["SimulatedRuns"]


@dataclass(frozen=True)
class SimulatedRuns:
    """Makes the runs of an experiment, in this process. There is nothing to warm up."""

    spec: ExperimentSpec
    cost: CostModel

    def run(self, turn: Turn, watch: RunWatch) -> Run:
        """Raises ConfigError for an arm that cannot work or is not simulated."""
        seed = self.spec.seed + turn.repeat
        workload = load_workload(self.spec.workload, seed)
        steps: list[StepRecord] = []
        simulation = Simulation(turn.arm.config, workload, self.cost, seed, watch=steps.append)
        trace = turn.trace_in(self.spec.traces)
        if trace:
            simulation.recording = Recording(turn.arm.name, str(turn.arm.config.scheduler))
        records = []
        try:
            for record in simulation.records():
                records.append(record)
                watch(len(records), len(workload.jobs))
        except ConfigError as error:
            raise ConfigError(f"arm {turn.arm.name!r}: {error}") from None
        records.sort(key=lambda record: record.index)
        totals = simulation.totals
        samples = _thinned(steps, totals.kv_capacity)
        described = [f"simulated on {self.cost.name}: {self.cost.note}"]
        if simulation.recording is not None:
            write_trace(Path(trace), [simulation.recording])
        return Run(
            turn.arm.name,
            turn.repeat,
            records,
            samples,
            totals.preemptions,
            totals.policy_faults,
            described,
            trace,
        )


def _thinned(steps: list[StepRecord], capacity: int) -> list[EngineSample]:
    samples = EngineSamples()
    for step in steps:
        samples.add(EngineSample(step.ended, step.running, step.waiting, 1 - step.kv_free / capacity))
    return samples.all()
