"""What shows a server at work goes together: /admin/live, traces, logs in JSON and profiles, all at once.

Each "yes" of their table in docs/reference/compatibility.md is served here, and no answer changes.
"""

from __future__ import annotations

import json
import logging
import os
import signal
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from asking import CHAT, COMPLETIONS
from otlp_receiver import Receiver, attributes, receiver
from running_server import Other, RunningServer, Start, eventually

from turnout.core.logs import JsonLines

BODY = {"prompt": "hello there", "max_tokens": 6}
PATHS = {
    "plain": (COMPLETIONS, BODY),
    "streamed": (COMPLETIONS, {**BODY, "stream": True}),
    "several choices": (COMPLETIONS, {**BODY, "n": 3, "temperature": 0.8, "seed": 5}),
    "several prompts": (COMPLETIONS, {**BODY, "prompt": ["one", "two"]}),
    "chat": (CHAT, {"messages": [{"role": "user", "content": "hello"}], "max_tokens": 4}),
}
SETTINGS: dict[str, tuple[dict[str, Any], dict[str, Any], set[str]]] = {
    "one engine": ({}, {}, {"echo/0"}),
    "replicas": ({}, {"replicas": 2}, {"echo/0", "echo/1"}),
    "ab": ({"other": Other("sjf", 0.5, {"scheduler": "sjf"})}, {}, {"echo/base/0", "echo/sjf/0"}),
}

Lines = list[dict[str, Any]]


@pytest.fixture(autouse=True)
def around(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "50")
    monkeypatch.setenv("ECHO_IMPORTS", "torch turnout.runner.execution.profiler")


@pytest.fixture
def collector() -> Iterator[Receiver]:
    with receiver() as found:
        yield found


@pytest.fixture
def log() -> Iterator[Lines]:
    """The access log as JSON."""
    lines: Lines = []

    class Keeping(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            lines.append(json.loads(self.format(record)))

    handler, logger = Keeping(), logging.getLogger("turnout.access")
    handler.setFormatter(JsonLines({}))
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    yield lines
    logger.removeHandler(handler)
    logger.setLevel(logging.NOTSET)


class Watcher:
    """Reads the feed in a thread of its own."""

    def __init__(self, url: str) -> None:
        self.engines: list[dict[str, Any]] = []
        threading.Thread(target=self._read, args=(url,), daemon=True).start()
        eventually(lambda: self.engines)

    def _read(self, url: str) -> None:
        try:
            with httpx.stream("GET", f"{url}/admin/live", timeout=60) as response:
                for line in response.iter_lines():
                    if line.startswith("data: "):
                        self.engines += json.loads(line.removeprefix("data: ")).get("engines", [])
        except httpx.HTTPError:  # the server ends
            pass

    def ended(self) -> int:
        requests = [each for engine in list(self.engines) for each in engine.get("requests", [])]
        return len({each["id"] for each in requests if each["state"] == "ended"})


def ask(server: RunningServer, name: str) -> str:
    """The answer's text, as it would be without names and times."""
    path, body = PATHS[name]
    answer = server.http.post(path, json=body, headers={"x-request-id": name})
    assert answer.status_code == 200, answer.text
    if name == "streamed":
        parts = [line[6:] for line in answer.text.splitlines() if line.startswith("data: {")]
        return "".join(choice["text"] for part in parts for choice in json.loads(part)["choices"])
    return json.dumps([choice.get("text") or choice["message"] for choice in answer.json()["choices"]])


def profile(server: RunningServer, path: str) -> list[dict[str, Any]]:
    arms = {engine["name"].split("/")[1] for engine in Watcher(server.url).engines if engine.get("arm")}
    answers = [server.http.post(path, params={"arm": arm} if arm else {}, timeout=60) for arm in arms or {""}]
    assert all(answer.status_code == 200 for answer in answers), [answer.text for answer in answers]
    return [answer.json() for answer in answers]


@pytest.mark.slow
@pytest.mark.parametrize("setting", SETTINGS)
def test_all_at_once_change_no_answer_and_miss_none(
    start: Start, collector: Receiver, log: Lines, tmp_path: Path, setting: str
) -> None:
    given, config, engines = SETTINGS[setting]
    plain = start(**given, **config)
    wanted = {name: ask(plain, name) for name in PATHS}
    eventually(lambda: {line["request_id"] for line in log} >= set(PATHS))  # a line may come after its answer
    log.clear()
    server = start(**given, **config, otlp_traces_endpoint=collector.url, profile_dir=tmp_path)
    watcher = Watcher(server.url)
    profile(server, "/start_profile")
    assert {name: ask(server, name) for name in PATHS} == wanted
    files = [file for report in profile(server, "/stop_profile") for file in report["files"]]
    assert len([file for file in files if file.endswith(".pt.trace.json.gz")]) == len(engines)

    eventually(lambda: all(collector.of_request(name) for name in PATHS))
    for name in PATHS:
        whole, *phases = collector.of_request(name)
        (line,) = (line for line in log if line["request_id"] == name)
        assert {"queue", "prefill", "decode"} <= {span.name for span in phases}
        assert attributes(whole)["gen_ai.usage.output_tokens"] == line["completion_tokens"]
    eventually(lambda: watcher.ended() == len(PATHS) + 1)  # one has two prompts
    assert {engine["name"] for engine in watcher.engines} == engines


@pytest.mark.slow
def test_all_of_them_follow_a_request_whose_engine_dies(
    start: Start, collector: Receiver, log: Lines, tmp_path: Path
) -> None:
    server = start(otlp_traces_endpoint=collector.url, profile_dir=tmp_path, replicas=2, engine_restarts=3)
    watcher = Watcher(server.url)
    profile(server, "/start_profile")
    body = {"prompt": "hello", "max_tokens": 100, "stream": True, "user": "slow"}
    with server.http.stream("POST", COMPLETIONS, json=body, headers={"x-request-id": "moved"}) as response:
        lines = response.iter_lines()
        for _ in range(12):
            next(lines)
        served = next(each for each in server.fleet.replicas if each.requests)
        assert served.client.pid is not None
        os.kill(served.client.pid, signal.SIGKILL)
        for _ in lines:
            pass
    eventually(lambda: collector.of_request("moved"), 20)
    assert "resumed" in {span.name for span in collector.of_request("moved")}
    (line,) = (line for line in log if line["request_id"] == "moved")
    assert line["completion_tokens"] == 100 and line["ended"] == "length"
    eventually(lambda: watcher.ended() == 1)
    requests = [each for engine in watcher.engines for each in engine.get("requests", [])]
    assert any(each.get("resumed") for each in requests)
    (report,) = profile(server, "/stop_profile")
    assert len([file for file in report["files"] if file.endswith(".pt.trace.json.gz")]) == 1
