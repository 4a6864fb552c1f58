"""Makes the runs of an experiment, one after the other."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

from turnout.lab.arms import Arm
from turnout.lab.compare.comparison import Comparison, QualityOutcome, compare
from turnout.lab.compare.runs.child import RunWatch
from turnout.lab.compare.runs.experiment_spec import ExperimentSpec
from turnout.lab.compare.runs.order import Turn, turns
from turnout.lab.compare.runs.predictions import different_predictions
from turnout.lab.compare.runs.quality import QualityText, arms_to_measure
from turnout.lab.compare.runs.run import Run

__all__ = ["Experiment", "Maker"]


class Maker(Protocol):
    """Makes runs: `LiveRuns` and `SimulatedRuns`."""

    def run(self, turn: Turn, watch: RunWatch) -> Run: ...


@dataclass
class Experiment:
    """Makes runs one by one, and keeps those that it has when it is interrupted."""

    spec: ExperimentSpec
    maker: Maker
    runs: list[Run] = field(default_factory=list)
    quality: dict[str, QualityOutcome] = field(default_factory=dict)
    """By arm."""

    def make(self, watching: Callable[[Turn], RunWatch]) -> None:
        """`watching` is called as each run begins, and returns the function that is told of its progress."""
        for turn in turns(self.spec.arms, self.spec.repeats):
            self.runs.append(self.maker.run(turn, watching(turn)))

    def measure_quality(self, measure: Callable[[Arm, Arm, QualityText], QualityOutcome]) -> None:
        """`measure` is called once for all arms that predict the same."""
        if self.spec.text is None:
            return
        base, known = self.spec.arms[0], list[Arm]()
        for arm in arms_to_measure(self.spec.arms):
            alike = (one for one in known if not different_predictions(one.config, arm.config))
            if (one := next(alike, None)) is not None:
                self.quality[arm.name] = self.quality[one.name]
                continue
            self.quality[arm.name] = measure(base, arm, self.spec.text)
            known.append(arm)

    def comparison(self) -> Comparison:
        """The comparison of the runs so far."""
        return compare(self.spec, self.runs, self.quality)
