"""`GET /admin/trace` and ``turnout trace``: what a running server did for some seconds."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import msgspec
import pytest
from asking import COMPLETIONS, events
from click.testing import CliRunner
from running_server import RunningServer

from turnout.cli.main import cli
from turnout.core.types.live.event import TraceFile

TRACE = "/admin/trace"


@pytest.mark.parametrize("query", ["seconds=0", "seconds=61", "seconds=nan", "seconds=x", "format=svg"])
def test_what_cannot_be_recorded_is_refused_by_name(server: RunningServer, query: str) -> None:
    answer = server.http.get(f"{TRACE}?{query}")
    assert answer.status_code == 400 and answer.json()["error"]["param"] == query.partition("=")[0]


def test_a_trace_has_the_steps_and_requests_of_its_seconds(server: RunningServer, tmp_path: Path) -> None:
    perfetto, live = tmp_path / "perfetto.json", tmp_path / "live.json"
    with ThreadPoolExecutor(3) as pool:
        body = {"prompt": "hello", "max_tokens": 40, "user": "slow"}
        pool.submit(events, server, COMPLETIONS, **body)
        asked = [
            pool.submit(_traced, server, "--out", str(file), "--format", form)
            for file, form in ((perfetto, "perfetto"), (live, "live"))
        ]
        said = [answer.result() for answer in asked]
    assert "ui.perfetto.dev" in said[0] and f"turnout view {live}" in said[1]
    names = [event["name"] for event in json.loads(perfetto.read_bytes())["traceEvents"]]
    assert {"decode", "policy", "KV free", "process_name"} <= set(names)
    assert any(name.startswith("request cmpl-") for name in names)
    told = msgspec.json.decode(live.read_bytes(), type=TraceFile).events
    assert told[0].first and any(engine.steps for event in told for engine in event.engines)
    assert sum(len(engine.requests) for event in told for engine in event.engines)


def _traced(server: RunningServer, *arguments: str) -> str:
    result = CliRunner().invoke(cli, ["trace", "--url", server.url, "--seconds", "1", *arguments])
    assert result.exit_code == 0, result.output
    return result.output


def test_a_server_that_is_not_there_is_one_line(tmp_path: Path) -> None:
    out = str(tmp_path / "trace.json")
    result = CliRunner().invoke(cli, ["trace", "--url", "http://127.0.0.1:9", "--out", out])
    assert result.exit_code == 1 and "no answer from http://127.0.0.1:9" in result.output
