"""Making the runs of a question, one after the other."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

from turnout.lab.compare.comparison import Comparison, compare
from turnout.lab.compare.live import Watch
from turnout.lab.compare.order import Turn, turns
from turnout.lab.compare.question import Question
from turnout.lab.compare.run import Run

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

    def make(self, watching: Callable[[Turn], Watch]) -> None:
        """`watching` is asked, as each run begins, whom to tell how far it is."""
        for turn in turns(self.question.arms, self.question.repeats):
            self.runs.append(self.maker.run(turn, watching(turn)))

    def comparison(self) -> Comparison:
        """Of all that there is so far."""
        return compare(self.question, self.runs)
