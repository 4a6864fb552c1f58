"""Runs on real engines, and judgements of them, each in a fresh process."""

from __future__ import annotations

from dataclasses import dataclass

from turnout.lab.arms import Arm
from turnout.lab.compare.runs.child import Watch, carry_out
from turnout.lab.compare.runs.experiment_spec import Question
from turnout.lab.compare.runs.order import Turn
from turnout.lab.compare.runs.predictions import predicting_options
from turnout.lab.compare.runs.protocol import Done, Incomparable, Judge, Judged, Task
from turnout.lab.compare.runs.quality import QualityText
from turnout.lab.compare.runs.run import Run

__all__ = ["Live", "judge_live"]


@dataclass(frozen=True)
class Live:
    """Makes the runs of a question."""

    question: Question

    def run(self, turn: Turn, watch: Watch) -> Run:
        """Raises ConfigError for an arm that cannot work, EngineError for a run that broke."""
        process = f"the process of repeat {turn.repeat + 1}"
        done = carry_out(self._task(turn), turn.arm.name, process, watch)
        assert isinstance(done, Done)
        return done.run

    def _task(self, turn: Turn) -> Task:
        question, config = self.question, turn.arm.config
        return Task(
            arm=turn.arm.name,
            repeat=turn.repeat,
            config=config.model_dump(mode="json", exclude_unset=True),
            workload=question.workload,
            seed=question.seed + turn.repeat,
            warm_up=question.warm_up,
            temperature=question.asked_temperature,
        )


def judge_live(base: Arm, other: Arm, text: QualityText) -> Judged | Incomparable:
    """Both models are in memory at once. Raises as `Live.run`."""
    order = Judge(
        configs=(predicting_options(base.config), predicting_options(other.config)),
        text=text.content,
        tokens=text.tokens,
    )
    found = carry_out(order, other.name, "the process that judges its answers", lambda done, total: None)
    assert not isinstance(found, Done)
    return found
