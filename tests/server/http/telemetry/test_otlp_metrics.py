"""Metrics, as an OpenTelemetry collector gets them: what `/metrics` shows."""

from __future__ import annotations

import asyncio
import socket
import threading
import time
from typing import Any

import pytest
from asking import COMPLETIONS
from otlp_receiver import receiver
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from running_server import Start, eventually

from turnout.server.http.telemetry.metrics import INTERVAL, Metrics, Starts, metrics_of


def test_each_kind_becomes_its_own() -> None:
    registry = CollectorRegistry()
    Counter("turnout:things", "Things.", ("who",), registry=registry).labels("me").inc(3)
    Gauge("turnout:level_bytes", "A level.", registry=registry).set(7)
    times = Histogram("turnout:wait_seconds", "Waits.", registry=registry, buckets=(1, 2))
    for value in (0.5, 0.6, 1.5, 9):
        times.observe(value)
    made = {metric.name: metric for metric in metrics_of(registry, Starts(5), 9)}
    assert {name: metric.unit for name, metric in made.items()} == {
        "turnout.things": "",
        "turnout.level_bytes": "By",
        "turnout.wait_seconds": "s",
    }
    (things,), (level,), (waits,) = (list(metric.data.data_points) for metric in made.values())
    assert (things.value, things.attributes, things.start_time_unix_nano) == (3, {"who": "me"}, 5)
    assert made["turnout.things"].data.is_monotonic and level.value == 7 and level.time_unix_nano == 9
    assert (waits.count, waits.sum, waits.bucket_counts) == (4, pytest.approx(11.6), [2, 1, 1])
    assert waits.explicit_bounds == [1, 2]


def test_a_sum_that_begins_anew_has_another_start() -> None:
    """Those of an engine that was replaced went back, by the protocol an error of the sender."""
    starts, points = Starts(5), []
    for now, counted in ((10, 3), (20, 4), (30, 1), (40, 2)):
        registry = CollectorRegistry()
        things = Counter("turnout:things", "Things.", ("who",), registry=registry)
        things.labels("it").inc(counted)
        things.labels("another").inc(now)
        Gauge("turnout:level", "A level.", registry=registry).set(-now)
        waits = Histogram("turnout:wait_seconds", "Waits.", registry=registry, buckets=(1,))
        for _ in range(counted):
            waits.observe(0.5)
        made = {metric.name: metric.data.data_points for metric in metrics_of(registry, starts, now)}
        it, another = made["turnout.things"]
        (wait,) = made["turnout.wait_seconds"]
        points.append([point.start_time_unix_nano for point in (it, wait, another)])
    assert points == [[5, 5, 5], [5, 5, 5], [20, 20, 5], [20, 20, 5]]


def test_what_prometheus_sees_is_sent(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_METRIC_EXPORT_INTERVAL", "100")
    with receiver() as collector:
        server = start(otlp_metrics_endpoint=f"{collector.url}/v1/metrics")
        for _ in range(3):
            server.http.post(COMPLETIONS, json={"prompt": "a", "max_tokens": 2})

        def counted() -> list[Any]:
            return [
                point
                for metric in list(collector.metrics)
                if metric.name == "turnout.time_to_first_token_seconds"
                for point in metric.histogram.data_points
                if point.count == 3
            ]

        eventually(counted, 20)
        names = {metric.name for metric in collector.metrics}
        assert {"turnout.generation_tokens", "turnout.request_success"} <= names
        shown = server.http.get("/metrics").text
        for name in names:
            assert f"# HELP {name.replace('.', ':', 1)}" in shown, name


def test_a_dead_collector_holds_up_neither_service_nor_end(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_METRIC_EXPORT_INTERVAL", "60")
    with socket.create_server(("127.0.0.1", 0)) as silent:
        server = start(otlp_metrics_endpoint=f"http://127.0.0.1:{silent.getsockname()[1]}")
        time.sleep(0.3)
        for _ in range(5):
            done = server.http.post(COMPLETIONS, json={"prompt": "a", "max_tokens": 2})
            assert done.status_code == 200


def test_no_thread_tries_again_after_the_end() -> None:
    """One that waited to try again drew from `random` seconds later, in the middle of another test."""
    with socket.create_server(("127.0.0.1", 0)) as closed:
        endpoint = f"http://127.0.0.1:{closed.getsockname()[1]}"

    async def collect() -> CollectorRegistry:
        return CollectorRegistry()

    async def run_and_end() -> None:
        running = asyncio.create_task(Metrics(endpoint, {INTERVAL: "50"}).run(collect))
        await asyncio.sleep(0.2)
        running.cancel()
        await asyncio.wait([running])

    asyncio.run(run_and_end())
    trying = [thread for thread in threading.enumerate() if thread.name == "metrics"]
    for thread in trying:
        thread.join(2.0)
    assert not any(thread.is_alive() for thread in trying)


def test_metrics_are_sent_again_after_a_time_when_they_could_not_be(caplog: pytest.LogCaptureFixture) -> None:
    """The first error ended the sending for good, without a word."""
    turns: list[int] = []

    async def collect() -> CollectorRegistry:
        turns.append(len(turns))
        if len(turns) == 1:
            raise RuntimeError("can't start new thread")
        return CollectorRegistry()

    async def run() -> None:
        running = asyncio.create_task(Metrics(collector.url, {INTERVAL: "50"}).run(collect))
        while len(turns) < 3 and not running.done():
            await asyncio.sleep(0.01)
        assert not running.done()
        running.cancel()
        await asyncio.wait([running])

    with receiver() as collector:
        asyncio.run(run())
    assert "metrics could not be sent" in caplog.text
