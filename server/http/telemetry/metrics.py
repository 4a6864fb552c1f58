"""Sends what ``/metrics`` shows to an OpenTelemetry collector now and then, from a thread of its own.

Names have a dot for Prometheus' colon, which the protocol's names may not have, and no ``_total``. Nothing
here is imported unless metrics are asked for.
"""

from __future__ import annotations

import asyncio
import logging
import math
import os
import threading
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import suppress

from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.sdk.metrics.export import (
    AggregationTemporality,
    Gauge,
    Histogram,
    HistogramDataPoint,
    Metric,
    MetricExportResult,
    MetricsData,
    NumberDataPoint,
    ResourceMetrics,
    ScopeMetrics,
    Sum,
)
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from prometheus_client.metrics_core import Metric as Family
from prometheus_client.registry import Collector

from turnout.core.version import own_version
from turnout.server.http.telemetry.traces import quiet_libraries, resource

__all__ = ["Metrics", "Starts", "metrics_of"]

logger = logging.getLogger(__name__)

INTERVAL = "OTEL_METRIC_EXPORT_INTERVAL"
"""In milliseconds."""
MINUTE = 60.0
LEAST_SECONDS = 0.05
CLOSE_SECONDS = 2.0
"""How long the server waits at its end for the collector."""
CUMULATIVE = AggregationTemporality.CUMULATIVE
_INF = float("inf")

Labels = tuple[tuple[str, str], ...]
Collect = Callable[[], Awaitable[Collector]]


class Metrics:
    """Sends what is collected every minute, or as `INTERVAL` says, and once at the end."""

    def __init__(self, endpoint: str, environment: Mapping[str, str] | None = None) -> None:
        quiet_libraries()
        self._endpoint = endpoint
        self._exporter = OTLPMetricExporter(endpoint=endpoint)
        self._resource, self._starts = resource(), Starts(time.time_ns())
        self._seconds = _interval(os.environ if environment is None else environment)
        self._well = True

    async def run(self, collect: Collect) -> None:
        """Until cancelled; then once more. No thread tries again after that."""
        try:
            while True:
                await asyncio.sleep(self._seconds)
                try:
                    await self._send(collect, None)
                except Exception:  # no thread can be started, or a front is gone
                    logger.exception("metrics could not be sent")
        finally:
            await self._send(collect, CLOSE_SECONDS)
            self._exporter.shutdown()

    async def _send(self, collect: Collect, most: float | None) -> None:
        """Send in a thread that no one waits for longer than `most` seconds."""
        collected = await collect()
        loop, sent = asyncio.get_running_loop(), asyncio.Event()

        def send() -> None:
            self._export(collected)
            with suppress(RuntimeError):  # the loop has ended: no one waits any more
                loop.call_soon_threadsafe(sent.set)

        threading.Thread(target=send, name="metrics", daemon=True).start()
        with suppress(TimeoutError):
            async with asyncio.timeout(most):
                await sent.wait()

    def _export(self, collected: Collector) -> None:
        try:
            data = metrics_of(collected, self._starts, time.time_ns())
            scope = ScopeMetrics(InstrumentationScope("turnout", own_version()), data, "")
            whole = MetricsData([ResourceMetrics(self._resource, [scope], "")])
            self._tell(self._exporter.export(whole) is MetricExportResult.SUCCESS)
        except Exception:
            logger.exception("metrics could not be sent")

    def _tell(self, well: bool) -> None:
        if self._well and not well:
            logger.warning("metrics cannot be sent to %s, until they can", self._endpoint)
        elif well and not self._well:
            logger.info("metrics are sent to %s again", self._endpoint)
        self._well = well


def _interval(environment: Mapping[str, str]) -> float:
    try:
        seconds = float(environment.get(INTERVAL, "")) / 1000
    except ValueError:
        return MINUTE
    return max(LEAST_SECONDS, seconds) if math.isfinite(seconds) else MINUTE


class Starts:
    """Since when each series counts: since the server began, or since the series began anew, as that of an
    engine which was replaced. Times are in nanoseconds since the epoch."""

    def __init__(self, first: int) -> None:
        self.first = first
        self._seen: dict[tuple[str, Labels], tuple[float, int, int]] = {}
        """The latest value, since when it counts, and when it was seen."""

    def of(self, name: str, labels: Mapping[str, str], value: float, now: int) -> int:
        key = name, tuple(sorted(labels.items()))
        before, start, seen = self._seen.get(key, (0.0, self.first, self.first))
        if value < before:
            start = seen
        self._seen[key] = value, start, now
        return start


def metrics_of(collected: Collector, starts: Starts, now: int) -> list[Metric]:
    """What a registry has, as the protocol has it."""
    return [made for family in collected.collect() for made in _metric(family, starts, now)]


def _metric(family: Family, starts: Starts, now: int) -> Iterator[Metric]:
    name = family.name.replace(":", ".")
    unit = "s" if family.name.endswith("_seconds") else "By" if family.name.endswith("_bytes") else ""
    if family.type == "histogram":
        yield Metric(
            name, family.documentation, unit, Histogram(list(_histograms(family, starts, now)), CUMULATIVE)
        )
        return
    counter = family.type == "counter"
    wanted = f"{family.name}_total" if counter else family.name
    points = []
    for sample in family.samples:
        if sample.name == wanted:
            start = starts.of(name, sample.labels, sample.value, now) if counter else starts.first
            points.append(NumberDataPoint(sample.labels, start, now, sample.value))
    if points:
        data = Sum(points, CUMULATIVE, is_monotonic=True) if counter else Gauge(points)
        yield Metric(name, family.documentation, unit, data)


def _histograms(family: Family, starts: Starts, now: int) -> Iterator[HistogramDataPoint]:
    """One for each set of labels. Prometheus' buckets have what lies below them too."""
    buckets: dict[Labels, dict[float, float]] = {}
    sums: dict[Labels, float] = {}
    for sample in family.samples:
        labels = {name: value for name, value in sample.labels.items() if name != "le"}
        key = tuple(sorted(labels.items()))
        if sample.name.endswith("_bucket"):
            buckets.setdefault(key, {})[float(sample.labels["le"])] = sample.value
        elif sample.name.endswith("_sum"):
            sums[key] = sample.value
    for key, below in buckets.items():
        bounds = sorted(below)
        counts = [int(below[bound]) for bound in bounds]
        parts = [count - before for count, before in zip(counts, [0, *counts], strict=False)]
        finite = [bound for bound in bounds if bound != _INF]
        yield HistogramDataPoint(
            dict(key),
            starts.of(family.name, dict(key), counts[-1], now),
            now,
            counts[-1],
            sums.get(key, 0.0),
            parts,
            finite,
            min=None,  # type: ignore[arg-type]  # the protocol's field may be missing
            max=None,  # type: ignore[arg-type]
        )
