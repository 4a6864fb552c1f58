"""`GET /admin/live`: what watchers see, who may watch, and that nothing is computed while nobody does."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from itertools import count
from types import SimpleNamespace
from typing import Any, cast
from unittest.mock import Mock, PropertyMock

import httpx
import msgspec
import pytest
from asking import COMPLETIONS, events
from running_server import RunningServer, Start, eventually

from turnout.config import EngineConfig
from turnout.core.types.live.event import LiveEngine, LiveEvent
from turnout.core.types.live.news import EngineNews, LiveKV, LiveRequest, StepTrace
from turnout.server.admin.live import feed as feed_module
from turnout.server.admin.live.engine import EngineKey, WatchedEngine
from turnout.server.admin.live.feed import LiveFeed
from turnout.server.admin.live.parts import MAX_BYTES, encoded
from turnout.server.fleet.models.models import Models

LIVE = "/admin/live"
SECRET = "the client's own words"


class Screen:
    """What a watcher knows, merged from events as the console does."""

    def __init__(self) -> None:
        self.events: list[dict[str, Any]] = []
        self.requests: dict[str, dict[str, Any]] = {}
        self.states: dict[str, list[str]] = {}
        """The states that each request was seen in, in order."""
        self.steps: list[dict[str, Any]] = []

    def take(self, event: dict[str, Any]) -> None:
        self.events.append(event)
        for engine in event.get("engines", []):
            for request in engine.get("requests", []):
                self._see(engine["name"], request)
            for id, state, computed, output, preemptions in engine.get("progress", []):
                news = {"state": state, "computed": computed, "output_tokens": output}
                self._see(engine["name"], {**self.requests[id], **news, "preemptions": preemptions})
            self.steps += engine.get("steps", [])

    def _see(self, engine: str, request: dict[str, Any]) -> None:
        self.requests[request["id"]] = {**request, "engine": engine}
        seen = self.states.setdefault(request["id"], [])
        if not seen or seen[-1] != request["state"]:
            seen.append(request["state"])


@contextmanager
def watching(server: RunningServer) -> Iterator[Iterator[dict[str, Any]]]:
    """The events, each read as it comes."""
    with httpx.Client(base_url=server.url, timeout=20) as client, client.stream("GET", LIVE) as response:
        assert response.status_code == 200 and response.headers["content-type"].startswith(
            "text/event-stream"
        )
        lines = response.iter_lines()
        yield (json.loads(line.removeprefix("data: ")) for line in lines if line.startswith("data: "))


def _seen(server: RunningServer, screen: Screen, stream: Iterator[dict[str, Any]], until: Any) -> None:
    deadline = time.monotonic() + 30
    while not until():
        assert time.monotonic() < deadline, screen.requests
        screen.take(next(stream))


def test_a_watcher_sees_requests_come_and_end_but_not_what_they_say(server: RunningServer) -> None:
    screen = Screen()
    with watching(server) as stream, ThreadPoolExecutor(1) as pool:
        screen.take(next(stream))
        body = {"prompt": SECRET, "max_tokens": 40, "user": "slow"}
        done = pool.submit(events, server, COMPLETIONS, **body)
        ended = lambda: [r for r in screen.requests.values() if r["state"] == "ended"]  # noqa: E731
        _seen(server, screen, stream, ended)
        done.result()
    (request,) = ended()
    assert (request["client"], request["max_tokens"], request["output_tokens"]) == ("slow", 40, 40)
    assert request["finish_reason"] == "length" and abs(request["arrival"] - time.time()) < 30
    assert "decode" in screen.states[request["id"]]
    assert screen.events[0]["first"] and not any(event.get("first") for event in screen.events[1:])
    assert [step["number"] for step in screen.steps] == sorted({step["number"] for step in screen.steps})
    assert sum(step["tokens"] for step in screen.steps) >= 40 + request["prompt_tokens"] - 1
    assert SECRET not in json.dumps(screen.events)
    (engine,) = screen.events[0]["engines"]
    assert engine["state"] == "serving" and engine["policies"]["scheduler"] == "fcfs"


def test_at_most_four_events_come_in_a_second(server: RunningServer) -> None:
    with watching(server) as stream, ThreadPoolExecutor(1) as pool:
        pool.submit(events, server, COMPLETIONS, prompt="hello", max_tokens=80, user="slow")
        next(stream)
        began = time.monotonic()
        times = [next(stream)["at"] for _ in range(5)]
    assert times[-1] - times[0] >= 0.9 and time.monotonic() - began >= 0.9


def test_one_who_watches_later_is_told_of_what_goes_on(server: RunningServer) -> None:
    with watching(server) as early, ThreadPoolExecutor(1) as pool:
        screen = Screen()
        pool.submit(events, server, COMPLETIONS, prompt="hello", max_tokens=100, user="slow")
        _seen(server, screen, early, lambda: screen.requests)
        late = Screen()
        with watching(server) as stream:
            late.take(next(stream))
        assert late.events[0]["first"] and set(late.requests) == set(screen.requests)


@pytest.mark.slow
def test_nothing_is_computed_when_the_last_has_left(server: RunningServer) -> None:
    with watching(server) as stream:
        next(stream)
    heard: list[object] = []
    eventually(lambda: getattr(server.client.hear_news, "__name__", "") == "_ignore")  # it is noticed soon
    server.client.hear_news = heard.append
    time.sleep(6.5)
    events(server, COMPLETIONS, prompt="hello", max_tokens=5)
    heard.clear()
    events(server, COMPLETIONS, prompt="hello", max_tokens=60, user="slow")
    assert not heard, "the engine's record ends with its lease"


@pytest.mark.slow
def test_requests_of_an_engine_that_dies_are_seen_to_go_on(start: Start) -> None:
    server = start(engine_restarts=3)
    screen = Screen()
    with watching(server) as stream, ThreadPoolExecutor(1) as pool:
        done = pool.submit(events, server, COMPLETIONS, prompt="hello", max_tokens=150, user="slow")
        _seen(server, screen, stream, lambda: any("decode" in each for each in screen.states.values()))
        assert server.client.pid is not None
        os.kill(server.client.pid, signal.SIGKILL)
        _seen(server, screen, stream, lambda: any(r.get("resumed") for r in screen.requests.values()))
        _seen(server, screen, stream, lambda: all(r["state"] == "ended" for r in screen.requests.values()))
        done.result()
    (request,) = screen.requests.values()
    assert request["output_tokens"] == 150 and request["preemptions"] == 1
    states = [engine["state"] for event in screen.events for engine in event.get("engines", [])]
    assert "restarting" in states and states[-1] == "serving"
    died = next(i for i, event in enumerate(screen.events) if '"restarting"' in json.dumps(event))
    assert any("began" in json.dumps(event) or event.get("first") for event in screen.events[died:])


@pytest.mark.slow
def test_a_request_that_moves_to_another_engine_is_seen_there(start: Start) -> None:
    server = start(replicas=2)
    screen = Screen()
    with watching(server) as stream, ThreadPoolExecutor(1) as pool:
        done = pool.submit(events, server, COMPLETIONS, prompt="hello", max_tokens=150, user="slow")
        _seen(server, screen, stream, lambda: any("decode" in each for each in screen.states.values()))
        (request,) = screen.requests.values()
        assert {engine["name"] for engine in screen.events[0]["engines"]} == {"echo/0", "echo/1"}
        drained = request["engine"].removeprefix("echo/")
        server.post("/admin/replicas", action="drain", replica=drained)
        _seen(server, screen, stream, lambda: screen.requests[request["id"]].get("moved_from"))
        _seen(server, screen, stream, lambda: screen.requests[request["id"]]["state"] == "ended")
        done.result()
    last = screen.requests[request["id"]]
    assert last["moved_from"] == request["engine"] != last["engine"] and last["output_tokens"] == 150


@pytest.mark.slow
def test_only_an_admin_may_watch_until_the_server_ends(start: Start) -> None:
    server = start(admin_key=["secret-of-the-admin"])
    assert server.http.get(LIVE).status_code == 401
    with server.http.stream("GET", LIVE, headers={"Authorization": "Bearer secret-of-the-admin"}) as response:
        assert response.status_code == 200
        lines = response.iter_lines()
        next(lines)
        server.arms.closing = True
        assert sum(line.startswith("data: ") for line in lines) <= 8


def test_one_who_reads_slowly_gets_all_that_is_known_instead_of_what_was_missed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(feed_module, "TICK_SECONDS", 0.05)
    turns = count()
    client = SimpleNamespace(watch=lambda *_, **__: None)
    replica = Mock(client=client, generation=None)
    replica.name = "0"
    type(replica).condition = PropertyMock(side_effect=lambda: f"state {next(turns)}")
    engines = SimpleNamespace(replicas=[replica])
    arm = SimpleNamespace(name="", active=True, config=EngineConfig(), client=engines)
    model = SimpleNamespace(name="m", loaded=True, arms=SimpleNamespace(all=[arm], trial=None))
    feed = LiveFeed(cast(Models, SimpleNamespace(all=[model], closing=False)))

    async def watch() -> list[bool]:
        stream = feed.events()
        firsts = [b'"first":true' in await anext(stream) for _ in range(2)]
        await asyncio.sleep(0.5)
        firsts.append(b'"first":true' in await anext(stream))
        await stream.aclose()
        assert not feed.watched
        return firsts

    assert asyncio.run(watch()) == [True, False, True]


# ------------------------------------------------------------------ sizes


def _engine(requests: int, **more: Any) -> LiveEngine:
    name = "cmpl-0123456789abcdef0123456789abcdef-"
    told = [
        LiveRequest(
            id=f"{name}{i}", client="a client", prompt_tokens=1000, max_tokens=512, arrival=1.79e9 + i / 7,
            state="decode", computed=1100 + i, output_tokens=100 + i, cached_tokens=16,
        )
        for i in range(requests)
    ]  # fmt: skip
    return LiveEngine(model="m", name="m/0", replica="0", state="serving", requests=told, **more)


def test_an_event_of_a_thousand_requests_comes_in_parts_below_the_bound() -> None:
    spans = [(f"cmpl-0123456789abcdef0123456789abcdef-{i}", "decode", 1.79e9, None) for i in range(1000)]
    steps = [StepTrace(number=i, started=1.79e9 + i, tokens=1000) for i in range(250)]
    engine = _engine(1000, began=True, spans=spans, steps=steps)
    parts = encoded(LiveEvent(at=1.79e9, first=True, engines=[engine]))
    assert all(len(part) < 200_000 for part in parts)
    told = [msgspec.json.decode(part.removeprefix(b"event: live\ndata: ")) for part in parts]
    assert [bool(event.get("first")) for event in told] == [True] + [False] * (len(told) - 1)
    engines = [each for event in told for each in event.get("engines", [])]
    assert [bool(each.get("began")) for each in engines] == [True] + [False] * (len(engines) - 1)
    for name, whole in (("requests", 1000), ("spans", 1000), ("steps", 250)):
        assert sum(len(each.get(name, [])) for each in engines) == whole


def test_those_who_begin_to_watch_are_not_told_of_the_memory_of_an_engine_that_died() -> None:
    engine = WatchedEngine(EngineKey("m", "base", "0"), {})
    engine.hear(EngineNews(at=1.0, kv=LiveKV(unit=16, capacity=64, free=16, held=48)))
    assert engine.whole().kv is not None
    engine.hear(EngineNews(at=2.0, began=True))
    assert engine.whole().kv is None


def test_progress_of_a_thousand_requests_is_one_event() -> None:
    name = "cmpl-0123456789abcdef0123456789abcdef-"
    progress = [(f"{name}{i}", "decode", 1000 + i, 100 + i, 0) for i in range(1000)]
    engine = LiveEngine(model="m", name="m/0", replica="0", state="serving", progress=progress)
    (part,) = encoded(LiveEvent(at=1.79e9, engines=[engine]))
    assert len(part) < MAX_BYTES / 2
