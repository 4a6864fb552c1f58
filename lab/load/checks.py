"""Checks that a run measured what it was meant to: counts of tokens, and the load generator's own lag."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from turnout.lab.load.sender import StreamedAnswer
from turnout.lab.load.target import Target
from turnout.lab.results.record import Record

__all__ = ["LAG_LIMIT", "Checks", "lag_p99"]

LAG_LIMIT = 0.005
"""Seconds. A load generator that lags by more is itself part of what it measures."""


@dataclass
class Checks:
    """Counts answers that are not as they were asked for."""

    target: Target

    def __post_init__(self) -> None:
        self._found: Counter[str] = Counter()
        self._errors: Counter[str] = Counter()

    def add(self, record: Record, answer: StreamedAnswer) -> None:
        if record.error:
            self._errors[record.error] += 1
            return
        job = record.job
        if answer.usage is None:
            self._found["answers without usage: messages counted as tokens, prompts not counted"] += 1
        elif self._counts_otherwise(record):
            self._found["prompts that the server counts otherwise than was sent"] += 1
        if record.output_tokens != job.output and not self.target.pools:
            self._found["outputs of another length than was asked for"] += 1

    def _counts_otherwise(self, record: Record) -> bool:
        target = self.target
        return target.prompts == "tokens" and not target.pools and record.prompt_tokens != record.job.prompt

    def warnings(self, records: Sequence[Record]) -> list[str]:
        """A line each."""
        lag = lag_p99(records)
        late = f"the load generator lags, p99 {1000 * lag:.1f} ms: what it measured is not the server's alone"
        return [
            *([late] if lag > LAG_LIMIT else []),
            *(f"{what}: {count:,}" for what, count in self._found.most_common()),
            *(f"failed: {count:,}: {error}" for error, count in self._errors.most_common(5)),
        ]


def lag_p99(records: Sequence[Record]) -> float:
    """How much later than due requests were sent, in seconds: the 99th percentile."""
    return float(np.percentile([record.sent - record.due for record in records], 99)) if records else 0.0
