"""Records of a run in a few figures, with vLLM's names (``vllm bench serve``)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from turnout.lab.results.distribution import EXACT, Distribution
from turnout.lab.results.goodput import Goodput
from turnout.lab.results.record import Record

__all__ = ["LATENCIES", "PERCENTILES", "Accumulator", "Latency", "Summary", "summarize"]

LATENCIES = {
    "ttft": "Time to First Token",
    "tpot": "Time per Output Token (excl. 1st token)",
    "itl": "Inter-token Latency",
    "e2el": "End-to-end Latency",
}
"""The latencies that are summarized, by the names that vLLM gives them."""

PERCENTILES = (90.0, 95.0, 99.0)


@dataclass(frozen=True)
class Latency:
    """Milliseconds."""

    mean: float
    median: float
    std: float
    percentiles: Mapping[float, float]
    count: int
    """The number of values; all figures are 0 where there are none."""


@dataclass(frozen=True)
class Summary:
    """Throughputs are by the second, of requests that did not fail."""

    duration: float
    completed: int
    failed: int
    total_input_tokens: int
    total_output_tokens: int
    request_throughput: float
    request_goodput: float | None
    """Good requests a second; None where no limits of good requests were given."""
    output_throughput: float
    total_token_throughput: float
    latencies: Mapping[str, Latency]
    """By the names of `LATENCIES`."""

    def as_json(self) -> dict[str, float | int | None]:
        """Flat, as vLLM writes it: ``mean_ttft_ms``, ``p99_itl_ms``."""
        figures: dict[str, float | int | None] = {
            name: getattr(self, name) for name in self.__dataclass_fields__ if name != "latencies"
        }
        for name, latency in self.latencies.items():
            figures[f"mean_{name}_ms"] = latency.mean
            figures[f"median_{name}_ms"] = latency.median
            figures[f"std_{name}_ms"] = latency.std
            figures |= {f"p{rank:g}_{name}_ms": value for rank, value in latency.percentiles.items()}
        return figures


class Accumulator:
    """Takes records one by one, and keeps only what the summary needs of them."""

    def __init__(
        self,
        goodput: Goodput | None = None,
        percentiles: Sequence[float] = PERCENTILES,
        exact: int = EXACT,
    ) -> None:
        """`exact`: values of which percentiles are exact."""
        self._goodput = goodput
        self._ranks = tuple(percentiles)
        self._latencies = {name: Distribution(exact) for name in LATENCIES}
        self._completed = self._failed = self._good = self._input = self._output = 0

    def add(self, record: Record) -> None:
        if record.error:
            self._failed += 1
            return
        self._completed += 1
        self._input += record.prompt_tokens
        self._output += record.output_tokens
        self._latencies["e2el"].add([record.e2el])
        if self._goodput is not None:
            self._good += self._goodput.meets(record)
        if record.token_times:
            self._add_tokens(record)

    def merge(self, other: Accumulator) -> None:
        """Take in the records that another one was given, of the same goodput."""
        for name, values in other._latencies.items():
            self._latencies[name].merge(values)
        for name in ("_completed", "_failed", "_good", "_input", "_output"):
            setattr(self, name, getattr(self, name) + getattr(other, name))

    def _add_tokens(self, record: Record) -> None:
        self._latencies["ttft"].add([record.ttft])
        # What `record.itl` has, for a million records: tokens of one message have one time, and no gap.
        gaps = np.diff(record.token_times)
        self._latencies["itl"].add(gaps[gaps > 0])
        if record.output_tokens > 1:
            self._latencies["tpot"].add([record.tpot])

    def summary(self, duration: float) -> Summary:
        """`duration`: seconds from the run's beginning to its last answer."""
        seconds = duration or float("inf")
        return Summary(
            duration=duration,
            completed=self._completed,
            failed=self._failed,
            total_input_tokens=self._input,
            total_output_tokens=self._output,
            request_throughput=self._completed / seconds,
            request_goodput=None if self._goodput is None else self._good / seconds,
            output_throughput=self._output / seconds,
            total_token_throughput=(self._input + self._output) / seconds,
            latencies={name: self._latency(values) for name, values in self._latencies.items()},
        )

    def _latency(self, values: Distribution) -> Latency:
        median, *others = (1000 * value for value in values.percentiles([50.0, *self._ranks]))
        return Latency(
            mean=1000 * values.mean,
            median=median,
            std=1000 * values.std,
            percentiles=dict(zip(self._ranks, others, strict=True)),
            count=values.count,
        )


def summarize(
    records: Iterable[Record],
    duration: float,
    goodput: Goodput | None = None,
    percentiles: Sequence[float] = PERCENTILES,
) -> Summary:
    """TPOT leaves the first token out, and requests of a single token; ITL is each gap between messages."""
    accumulator = Accumulator(goodput, percentiles)
    for record in records:
        accumulator.add(record)
    return accumulator.summary(duration)
