"""The metrics that are compared: one number each for a run, named as vLLM's benchmark names them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

from turnout.lab.results.goodput import Goodput
from turnout.lab.results.record import Record
from turnout.lab.results.summary import Summary, summarize

__all__ = ["Figures", "Metric", "client_waits", "duration", "figures_of", "grain", "measure", "metrics"]

Figures = Mapping[str, float]
"""By a metric's name; nan where a run has nothing to measure, such as the TPOT of answers of one token."""

WORST_CLIENT = "worst_client_ttft"


@dataclass(frozen=True)
class Metric:
    name: str
    """As ``--fail-on`` and the JSON have it: vLLM's, without the ``_ms``."""
    title: str
    unit: str
    higher_is_better: bool


def metrics(*, goodput: bool, clients: bool) -> tuple[Metric, ...]:
    """`goodput`: limits of good requests were given; `clients`: the workload has several clients."""
    return (
        Metric("request_throughput", "request throughput", "req/s", True),
        *([Metric("request_goodput", "goodput", "req/s", True)] if goodput else []),
        Metric("output_throughput", "output throughput", "tok/s", True),
        *_latencies("ttft", "mean", "median", "p99"),
        *_latencies("tpot", "mean", "median", "p99"),
        *_latencies("itl", "p99"),
        *_latencies("e2el", "mean", "median", "p99"),
        *([Metric(WORST_CLIENT, "mean TTFT of the worst-served client", "ms", False)] if clients else []),
    )


def _latencies(name: str, *kinds: str) -> Iterator[Metric]:
    return (Metric(f"{kind}_{name}", f"{kind} {name.upper()}", "ms", False) for kind in kinds)


def measure(records: Sequence[Record], goodput: Goodput | None) -> dict[str, float]:
    """Milliseconds, and requests and tokens a second."""
    waits = client_waits(records)
    summary = summarize(records, duration(records), goodput)
    return {**figures_of(summary), WORST_CLIENT: max(waits.values(), default=math.nan)}


def figures_of(summary: Summary) -> dict[str, float]:
    """What `measure` makes of records of which only a summary is kept, but for what it says of clients."""
    named = {
        name.removesuffix("_ms"): float(value)
        for name, value in summary.as_json().items()
        if value is not None
    }
    missing = [name for name, latency in summary.latencies.items() if not latency.count]
    return named | {name: math.nan for name in named if name.rpartition("_")[2] in missing}


def grain(metric: Metric, figures: Figures) -> float:
    """The least by which a run's figure can change: a request in the run's time; 0 for what is no count."""
    return 1 / figures["duration"] if metric.unit == "req/s" and figures["duration"] else 0.0


def duration(records: Sequence[Record]) -> float:
    """Seconds from the run's beginning to its last answer."""
    return max((record.finished for record in records), default=0.0)


def client_waits(records: Iterable[Record]) -> dict[str, float]:
    """The mean TTFT of each client, in milliseconds."""
    waits: dict[str, list[float]] = {}
    for record in records:
        if record.served:
            waits.setdefault(record.job.client, []).append(1000 * record.ttft)
    return {client: fmean(values) for client, values in waits.items()}
