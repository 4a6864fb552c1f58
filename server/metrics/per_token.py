"""Metrics that every token adds to, at a tenth of what prometheus_client's own take for it."""

from __future__ import annotations

import time
from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from itertools import accumulate

from prometheus_client.core import CounterMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector
from prometheus_client.utils import INF, floatToGoString

__all__ = ["Distribution", "Total"]


class Distribution(Collector):
    """A histogram. Observed in one thread."""

    def __init__(
        self, name: str, description: str, bounds: Sequence[float], labels: Mapping[str, str]
    ) -> None:
        self._name, self._description, self._labels = name, description, dict(labels)
        self._bounds = [*bounds, INF]
        self._counts = [0] * len(self._bounds)
        self._sum = 0.0
        self._created = time.time()

    def observe(self, value: float, times: int = 1) -> None:
        self._counts[bisect_left(self._bounds, value)] += times
        self._sum += value * times

    def collect(self) -> Iterator[Metric]:
        family = HistogramMetricFamily(self._name, self._description, labels=tuple(self._labels))
        counts = map(float, accumulate(self._counts))
        buckets = list(zip(map(floatToGoString, self._bounds), counts, strict=True))
        family.add_metric(tuple(self._labels.values()), buckets, self._sum)
        family.add_sample(f"{self._name}_created", self._labels, self._created)
        yield family


class Total(Collector):
    """A counter. Counted in one thread."""

    def __init__(self, name: str, description: str, labels: Mapping[str, str]) -> None:
        self._name, self._description, self._labels = name, description, dict(labels)
        self._created = time.time()
        self.value = 0.0

    def collect(self) -> Iterator[Metric]:
        family = CounterMetricFamily(self._name, self._description, labels=tuple(self._labels))
        family.add_metric(tuple(self._labels.values()), self.value, self._created)
        yield family
