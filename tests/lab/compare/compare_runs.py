"""Runs for tests: made up, or simulated with the noise of a machine."""

from __future__ import annotations

import random
from dataclasses import dataclass, replace

import msgspec

from turnout.config import EngineConfig
from turnout.lab.arms import parse_arms
from turnout.lab.compare.runs.child import RunWatch
from turnout.lab.compare.runs.experiment_spec import ExperimentSpec
from turnout.lab.compare.runs.order import Turn
from turnout.lab.compare.runs.run import Run
from turnout.lab.jobs.job import Job
from turnout.lab.results.record import Record
from turnout.lab.simulation import CostModel, preset, run_simulated
from turnout.lab.simulation.cost import Seconds
from turnout.lab.workloads.source import load_workload

H100 = preset("h100-7b")


def spec(*arms: str, workload: str = "poisson:rate=1", **given: object) -> ExperimentSpec:
    return ExperimentSpec(parse_arms(arms or ("base", "other"), EngineConfig()), workload, **given)


def record(index: int = 0, **changes: object) -> Record:
    """Four tokens of output, the first after 100 ms, the others 10 ms apart."""
    made = Record(
        Job(at=float(index), prompt=8, output=4),
        index,
        due=float(index),
        sent=float(index),
        token_times=[index + 0.1, index + 0.11, index + 0.12, index + 0.13],
        finished=index + 0.13,
        prompt_tokens=8,
        output_tokens=4,
        digest=f"answer {index}",
    )
    return replace(made, **changes)


def run(arm: str, repeat: int = 0, **changes: object) -> Run:
    return Run(arm, repeat, [record(index, **changes) for index in range(3)])


def slower(share: float) -> CostModel:
    """The H100, each step `share` longer."""
    longer = 1 + share
    given = {name: value for name, value in vars(H100.seconds).items() if name not in ("tokens", "far")}
    seconds = {name: value * longer for name, value in given.items()}
    tokens = tuple((count, rate * longer) for count, rate in H100.seconds.tokens)
    return msgspec.structs.replace(H100, seconds=Seconds(**seconds, tokens=tokens))


@dataclass
class NoisyMachine:
    """Makes runs of a simulated engine on a machine that is now faster, now slower."""

    spec: ExperimentSpec
    noise: float
    """Of a run's speed: standard deviation of its logarithm."""
    rng: random.Random
    slowdown: float = 0.0
    """Of every arm but the first."""

    def run(self, turn: Turn, watch: RunWatch) -> Run:
        planted = self.slowdown if turn.arm is not self.spec.arms[0] else 0.0
        mood = self.rng.lognormvariate(0, self.noise)
        workload = load_workload(self.spec.workload, turn.repeat)
        cost = slower((1 + planted) * mood - 1)
        records = run_simulated(turn.arm.config, workload, cost, seed=turn.repeat)
        return Run(turn.arm.name, turn.repeat, records)
