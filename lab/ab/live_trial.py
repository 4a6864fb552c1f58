"""A live A/B test: takes reports of the arms' requests, and tells how the arms compare so far."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import scipy.special  # noqa: F401  # loaded now: later it would hold up a server's event loop

from turnout.core.clock import Clock, monotonic
from turnout.core.interfaces.trial import Outcome, RecordEnd
from turnout.lab.ab.blocks import Block, BlockSize
from turnout.lab.ab.findings import findings
from turnout.lab.ab.sequential import differences
from turnout.lab.ab.tally import Tally
from turnout.lab.ab.verdicts import live_verdict
from turnout.lab.compare.comparison import MetricRow
from turnout.lab.compare.report.as_json import row_as_json
from turnout.lab.compare.statistics.metrics import Figures, Metric, metrics
from turnout.lab.compare.statistics.statistics import log_ratios

__all__ = ["LiveTrial"]

METRICS = tuple(metric for metric in metrics(goodput=False, clients=False) if metric.unit == "ms")
"""Latencies alone: how much an arm serves depends on its share of the requests."""
WATCHED = "mean_e2el"
"""The metric by which successive blocks are compared with each other."""


class LiveTrial:
    """Implements `Trial` for two arms, of which the first is what the other is compared with."""

    def __init__(
        self,
        base: str,
        other: str,
        *,
        see: float = 0.02,
        size: BlockSize | None = None,
        clock: Clock = monotonic,
    ) -> None:
        """`see`: the smallest change that matters, as a share."""
        self._base, self._other = base, other
        self._see = see
        self._size = size or BlockSize()
        self._clock = clock
        self._tallies = {base: Tally(), other: Tally()}
        self._block: Block | None = None
        self._closed = False
        self._spans: list[float] = []
        """Seconds that each block took."""
        self._figures: list[dict[str, Figures]] = []
        """Of each complete block, by arm."""

    # -------------------------------------------------------------- reports of the server

    def arrived(self, arm: str) -> RecordEnd:
        self._tallies[arm].requests += 1
        block = self._current()
        if block is not None:
            block.arrive(arm)
        return partial(self._ended, arm, block)

    def close(self) -> None:
        """End the test: the block that is not full is dropped, full ones wait for their last requests."""
        self._block, self._closed = None, True

    def _current(self) -> Block | None:
        now = self._clock()
        if self._block is not None and self._block.full(self._size, now):
            self._spans.append(now - self._block.began)
            self._block.end()
            self._measure(self._block)
            self._block = None
        if self._block is None and not self._closed:
            self._block = Block([self._base, self._other], now)
        return self._block

    def _ended(self, arm: str, block: Block | None, outcomes: Sequence[Outcome]) -> None:
        records = self._tallies[arm].end(outcomes)
        if block is not None:
            block.leave(arm, records)
            self._measure(block)

    def _measure(self, block: Block) -> None:
        if block.complete:
            self._figures.append(block.figures())

    # -------------------------------------------------------------- the state of the test

    def results(self, policy_faults: Mapping[str, int]) -> dict[str, Any]:
        return {
            "base": self._base,
            "over": self._closed,
            "blocks": len(self._figures),
            "block_seconds": self._size.seconds,
            "block_requests": self._size.requests,
            "requests": {arm: tally.as_json() for arm, tally in self._tallies.items()},
            "findings": findings(self._tallies, policy_faults, log_ratios(self._pairs(_watched()))),
            "differences": {self._other: [row_as_json(row) for row in self._rows()]},
        }

    def _rows(self) -> list[MetricRow]:
        found = differences({metric.name: self._pairs(metric) for metric in METRICS})
        base, other = (self._tallies[arm].figures() for arm in (self._base, self._other))
        pace = float(np.mean(self._spans)) if self._spans else math.nan

        def row(metric: Metric) -> MetricRow:
            difference = found.get(metric.name)
            verdict = live_verdict(self._other, metric, difference, self._see, pace)
            return MetricRow(metric, base[metric.name], other[metric.name], difference, verdict)

        return [row(metric) for metric in METRICS]

    def _pairs(self, metric: Metric) -> list[tuple[float, float]]:
        return [(of[self._base][metric.name], of[self._other][metric.name]) for of in self._figures]


def _watched() -> Metric:
    return next(metric for metric in METRICS if metric.name == WATCHED)
