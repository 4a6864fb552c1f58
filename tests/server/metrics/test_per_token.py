"""Metrics of every token look like prometheus_client's own."""

from __future__ import annotations

import math
import re

from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.openmetrics.exposition import generate_latest as generate_openmetrics

from turnout.server.metrics.per_token import Distribution, Total

BOUNDS = (0.01, 0.025, 1, 20)
VALUES = (0.0, 0.01, 0.0100001, 0.5, 1.0, 19.0, 20.5, 1e9, math.inf)


def test_both_are_written_as_prometheus_client_writes_its_own() -> None:
    theirs, ours = CollectorRegistry(), CollectorRegistry()
    histogram = Histogram("x:gap", "A gap.", ("model",), registry=theirs, buckets=BOUNDS).labels('a "model"')
    counter = Counter("x:tokens", "Tokens.", ("model",), registry=theirs).labels('a "model"')
    labels = {"model": 'a "model"'}
    distribution, total = (
        Distribution("x:gap", "A gap.", BOUNDS, labels),
        Total("x:tokens", "Tokens.", labels),
    )
    ours.register(distribution)
    ours.register(total)
    for values in ((), VALUES):
        for value in values:
            histogram.observe(value)
            distribution.observe(value)
            counter.inc(3)
            total.value += 3
        for write in (generate_latest, generate_openmetrics):
            assert _without_times(write(ours)) == _without_times(write(theirs))


def test_several_observations_at_once_are_as_many_of_one() -> None:
    registries = [CollectorRegistry(), CollectorRegistry()]
    single, several = (Distribution("x:gap", "A gap.", BOUNDS, {"model": "a"}) for _ in registries)
    for registry, distribution in zip(registries, (single, several), strict=True):
        registry.register(distribution)
    for _ in range(3):
        single.observe(0.5)
    several.observe(0.5, 3)
    written = [_without_times(generate_latest(registry)) for registry in registries]
    assert written[0] == written[1]


def _without_times(text: bytes) -> bytes:
    return re.sub(rb"(?m)^(\S+_created\{.*\}) \S+$", rb"\1", text)
