"""`GET /admin/history`: what the server keeps of the last hour, whether or not somebody watched."""

from __future__ import annotations

import asyncio
import math
from types import SimpleNamespace
from typing import Any, cast

import pytest
from asking import COMPLETIONS
from prometheus_client import CollectorRegistry, Histogram
from running_server import Start, eventually

from turnout.core.types.messages import Stats
from turnout.server.admin.live import history
from turnout.server.admin.live.engine import EngineKey
from turnout.server.admin.live.history import POINTS, SECONDS, History, HistoryPoint
from turnout.server.admin.live.latencies import Latencies, quantile
from turnout.server.api.context import Context


def stats(**given: int) -> Stats:
    none = dict.fromkeys(Stats.__struct_fields__[:10], 0)
    return Stats(**{**none, "kv_capacity": 100, "kv_free": 100, **given})  # type: ignore[arg-type]


class Served:
    """A context of one model, whose engine's reports and latencies a test makes up."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        names = ("time_to_first_token_seconds", "request_time_per_output_token_seconds")
        self.first_token, self.per_token = (
            Histogram(f"turnout:{name}", "…", registry=self.registry, buckets=(0.1, 0.2, 1.0))
            for name in names
        )
        self.client = SimpleNamespace(stats=None)
        self.replica = SimpleNamespace(name="0", client=self.client, reports=True)
        fleet = SimpleNamespace(described=True, replicas=[self.replica])
        arm = SimpleNamespace(name="", active=True, client=fleet)
        self.context = SimpleNamespace(
            model_name="m",
            served=SimpleNamespace(loaded=True),
            arms=SimpleNamespace(all=[arm]),
            metrics={"": SimpleNamespace(registry=self.registry)},
            fronts=None,
        )
        self.now = 10_000.0 * SECONDS
        every = SimpleNamespace(each=[self.context])
        self.history = History(cast(Context, every), wall=lambda: self.now)

    def take(self, report: Stats | None) -> None:
        self.client.stats = report
        self.now += SECONDS
        asyncio.run(self.history.take())

    @property
    def points(self) -> list[HistoryPoint]:
        (engine,) = self.history.report().engines
        assert EngineKey(engine.model, engine.arm, engine.replica) == ("m", "", "0")
        return engine.points


def test_a_point_has_what_was_counted_since_the_one_before_and_the_state_at_its_end() -> None:
    served = Served()
    served.take(None)  # it has told nothing yet
    assert served.history.report().engines == []
    served.take(stats(steps=5, output_tokens=40, computed_tokens=100, running=2, kv_free=75))
    served.first_token.observe(0.15)
    served.take(stats(steps=9, output_tokens=70, computed_tokens=150, preemptions=1, waiting=3))
    first, second = served.points
    assert (first.output_tokens, first.running, first.kv, first.ttft) == (40, 2, 0.25, None)
    assert (second.output_tokens, second.computed_tokens, second.preemptions) == (30, 50, 1)
    assert (second.running, second.waiting, second.kv) == (0, 3, 0.0)
    assert second.ttft == pytest.approx(0.15) and second.tpot is None
    assert second.at - first.at == SECONDS and first.at % SECONDS == 0


def test_another_engine_in_its_place_counts_from_its_own_start() -> None:
    served = Served()
    served.take(stats(steps=50, output_tokens=400))
    served.take(stats(steps=3, output_tokens=8))
    assert [point.output_tokens for point in served.points] == [400, 8]


def test_an_engine_that_failed_has_no_more_points() -> None:
    """It went on with its last figures: a replica that was given up ran a request for ever."""
    served = Served()
    served.take(stats(steps=5, output_tokens=40, running=2))
    served.replica.reports = False
    served.take(stats(steps=5, output_tokens=40, running=2))
    assert len(served.points) == 1
    served.replica.reports = True
    served.take(stats(steps=2, output_tokens=10))
    assert [point.output_tokens for point in served.points] == [40, 10]


def test_an_hour_is_kept_and_an_engine_that_is_gone_for_so_long_is_forgotten() -> None:
    served = Served()
    for number in range(POINTS + 10):
        served.take(stats(steps=number, output_tokens=number))
    assert len(served.points) == POINTS and served.points[-1].output_tokens == 1
    served.context.arms.all = []
    served.now += POINTS * SECONDS
    served.take(None)
    assert served.history.report().engines == []


def test_a_model_that_is_not_loaded_is_left_alone() -> None:
    served = Served()
    served.context.served.loaded = False
    served.context.arms = cast(Any, None)
    served.take(stats(steps=1))
    assert served.history.report().engines == []


def test_quantiles_are_those_of_prometheus() -> None:
    counts = {0.1: 2.0, 0.2: 6.0, 1.0: 8.0, math.inf: 8.0}
    assert quantile(counts, 0.5) == pytest.approx(0.15)  # of the 4 in the second bucket, the second
    assert quantile(counts, 0.95) == pytest.approx(0.2 + 0.8 * (7.6 - 6) / 2)
    assert quantile({0.1: 0.0, math.inf: 3.0}, 0.5) == 0.1
    assert quantile({0.1: 0.0, math.inf: 0.0}, 0.5) is None
    assert quantile({}, 0.5) is None


def test_latencies_are_those_since_the_last_look() -> None:
    served, latencies = Served(), Latencies()
    served.first_token.observe(0.15)
    assert set(latencies.since(served.registry)) == {"ttft", "ttft95"}
    served.per_token.observe(0.05)
    assert set(latencies.since(served.registry)) == {"tpot", "tpot95"}
    assert latencies.since(served.registry) == {}


def test_a_server_keeps_points_while_nobody_watches(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(history, "SECONDS", 0.1)
    server = start()
    server.post(COMPLETIONS, prompt="Hello", max_tokens=4)

    def told() -> bool:
        engines = server.http.get("/admin/history").json()["engines"]
        points = [point for engine in engines for point in engine["points"]]
        return sum(point.get("output_tokens", 0) for point in points) >= 4 and any(
            "ttft" in p for p in points
        )

    eventually(told)


def test_only_an_admin_may_ask(start: Start) -> None:
    keyed = start(api_key=["k"], admin_key=["a"])
    for key in ("k", "guess"):
        refused = keyed.http.get("/admin/history", headers={"Authorization": f"Bearer {key}"})
        assert refused.status_code == 401
    assert (
        keyed.http.get("/admin/history", headers={"Authorization": "Bearer a"}).json()["seconds"] == SECONDS
    )
