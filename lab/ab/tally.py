"""Counts what an arm has served so far, in bounded memory."""

from __future__ import annotations

from collections.abc import Sequence

from turnout.core.interfaces.trial import Outcome
from turnout.lab.compare.statistics.metrics import Figures
from turnout.lab.jobs.job import Job
from turnout.lab.results.record import Record
from turnout.lab.results.summary import Accumulator

__all__ = ["Tally", "record_of"]

EXACT = 10_000
"""Values that percentiles are exact of: they are asked for while requests are served."""


class Tally:
    """The counts of one arm."""

    def __init__(self) -> None:
        self.requests = self.completed = self.failed = self.left = self.refused = 0
        self.prompt_tokens = self.output_tokens = 0
        self.latest_error = ""
        self._served = Accumulator(exact=EXACT)

    def end(self, outcomes: Sequence[Outcome]) -> list[Record]:
        """Counts a request that has ended, and returns the records of its choices, as `add` does."""
        self.refused += not outcomes
        return [record for each in outcomes if (record := self.add(each)) is not None]

    def add(self, outcome: Outcome) -> Record | None:
        """The record of a choice that ended by itself, for what is computed of latencies."""
        if outcome.reason == "abort":
            self.left += 1
            return None
        if outcome.reason == "error":
            self.failed += 1
            self.latest_error = outcome.error
            return None
        record = record_of(outcome)
        self.completed += 1
        self.prompt_tokens += record.prompt_tokens
        self.output_tokens += record.output_tokens
        self._served.add(record)
        return record

    def figures(self) -> Figures:
        """Latencies in milliseconds, by the names of `turnout.lab.compare.statistics.metrics`."""
        figures = self._served.summary(0.0).as_json()
        return {name.removesuffix("_ms"): float(value or 0) for name, value in figures.items()}

    def as_json(self) -> dict[str, int]:
        names = ("requests", "completed", "failed", "left", "refused", "prompt_tokens", "output_tokens")
        return {name: getattr(self, name) for name in names}


def record_of(outcome: Outcome) -> Record:
    tokens = len(outcome.token_times)
    return Record(
        job=Job(at=outcome.arrival, prompt=outcome.prompt_tokens, output=tokens),
        index=0,
        due=outcome.arrival,
        sent=outcome.arrival,
        token_times=list(outcome.token_times),
        finished=outcome.finished,
        prompt_tokens=outcome.prompt_tokens,
        output_tokens=tokens,
    )
