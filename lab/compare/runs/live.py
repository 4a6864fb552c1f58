"""Runs on real engines, and measurements of their quality, each in a fresh process."""

from __future__ import annotations

from dataclasses import dataclass

from turnout.lab.arms import Arm
from turnout.lab.compare.runs.child import RunWatch, carry_out
from turnout.lab.compare.runs.experiment_spec import ExperimentSpec
from turnout.lab.compare.runs.order import Turn
from turnout.lab.compare.runs.predictions import predicting_options
from turnout.lab.compare.runs.protocol import Incomparable, QualityResult, QualityTask, RunDone, RunTask
from turnout.lab.compare.runs.quality import QualityText
from turnout.lab.compare.runs.run import Run

__all__ = ["LiveRuns", "measure_quality_live"]


@dataclass(frozen=True)
class LiveRuns:
    """Makes the runs of an experiment."""

    spec: ExperimentSpec

    def run(self, turn: Turn, watch: RunWatch) -> Run:
        """Raises ConfigError for an arm that cannot work, EngineError for a run that broke."""
        process = f"the process of repeat {turn.repeat + 1}"
        done = carry_out(self._task(turn), turn.arm.name, process, watch)
        assert isinstance(done, RunDone)
        return done.run

    def _task(self, turn: Turn) -> RunTask:
        spec, config = self.spec, turn.arm.config
        return RunTask(
            arm=turn.arm.name,
            repeat=turn.repeat,
            config=config.model_dump(mode="json", exclude_unset=True),
            workload=spec.workload,
            seed=spec.seed + turn.repeat,
            warm_up=spec.warm_up,
            temperature=spec.request_temperature,
            trace=turn.trace_in(spec.traces),
        )


def measure_quality_live(base: Arm, other: Arm, text: QualityText) -> QualityResult | Incomparable:
    """Both models are in memory at once. Raises as `LiveRuns.run`."""
    order = QualityTask(
        configs=(predicting_options(base.config), predicting_options(other.config)),
        text=text.content,
        tokens=text.tokens,
    )
    found = carry_out(order, other.name, "the process that judges its answers", lambda done, total: None)
    assert not isinstance(found, RunDone)
    return found
