"""Metrics of several processes are summed."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Histogram
from prometheus_client.exposition import generate_latest

from turnout.server.metrics.figures import Summed, figures_of


def measured(waits: list[float], **ended: int) -> CollectorRegistry:
    registry = CollectorRegistry()
    histogram = Histogram("wait", "Seconds.", ("model",), registry=registry, buckets=(1, 2)).labels("m")
    for wait in waits:
        histogram.observe(wait)
    counter = Counter("ended", "Requests.", ("reason",), registry=registry)
    for reason, count in ended.items():
        counter.labels(reason).inc(count)
    return registry


def test_counters_and_histograms_are_those_of_one_process_that_had_all() -> None:
    own, first, second = measured([0.5, 3.0], stop=1), measured([1.5], stop=2, length=4), measured([])
    summed = Summed(own, [figures_of(first), figures_of(second)])
    whole = measured([0.5, 3.0, 1.5], stop=3, length=4)
    texts = [generate_latest(each).decode().splitlines() for each in (summed, whole)]
    counted = [sorted(line for line in lines if "_created" not in line) for lines in texts]
    assert counted[0] == counted[1]
    assert [line for line in texts[0] if line.startswith("# TYPE")] == [
        line for line in texts[1] if line.startswith("# TYPE")
    ]


def test_what_only_others_have_measured_is_there() -> None:
    summed = Summed(CollectorRegistry(), [figures_of(measured([], stop=2))])
    assert 'ended_total{reason="stop"} 2.0' in generate_latest(summed).decode()
