"""Making the runs of a question, one after the other."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

from turnout.lab.arms import Arm
from turnout.lab.compare.comparison import Comparison, Judgement, compare
from turnout.lab.compare.runs.child import Watch
from turnout.lab.compare.runs.experiment_spec import Question
from turnout.lab.compare.runs.order import Turn, turns
from turnout.lab.compare.runs.predictions import different_predictions
from turnout.lab.compare.runs.quality import QualityText, to_judge
from turnout.lab.compare.runs.run import Run

__all__ = ["Experiment", "Maker"]


class Maker(Protocol):
    """Makes runs: `Live` and `Simulated`."""

    def run(self, turn: Turn, watch: Watch) -> Run: ...


@dataclass
class Experiment:
    """Keeps what has been measured, whatever ends it."""

    question: Question
    maker: Maker
    runs: list[Run] = field(default_factory=list)
    judged: dict[str, Judgement] = field(default_factory=dict)
    """By arm."""

    def make(self, watching: Callable[[Turn], Watch]) -> None:
        """`watching` is asked, as each run begins, whom to tell how far it is."""
        for turn in turns(self.question.arms, self.question.repeats):
            self.runs.append(self.maker.run(turn, watching(turn)))

    def judge(self, judging: Callable[[Arm, Arm, QualityText], Judgement]) -> None:
        """Once for all arms that predict the same."""
        if self.question.text is None:
            return
        base, known = self.question.arms[0], list[Arm]()
        for arm in to_judge(self.question.arms):
            alike = (one for one in known if not different_predictions(one.config, arm.config))
            if (one := next(alike, None)) is not None:
                self.judged[arm.name] = self.judged[one.name]
                continue
            self.judged[arm.name] = judging(base, arm, self.question.text)
            known.append(arm)

    def comparison(self) -> Comparison:
        """Of all that there is so far."""
        return compare(self.question, self.runs, self.judged)
