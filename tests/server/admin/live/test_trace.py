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


@pytest.mark.slow
def test_a_trace_has_the_steps_and_requests_of_its_seconds(server: RunningServer, tmp_path: Path) -> None:
    file = tmp_path / "trace.json"
    with ThreadPoolExecutor(2) as pool:
        pool.submit(events, server, COMPLETIONS, prompt="hello", max_tokens=40, user="slow")
        live = pool.submit(server.http.get, f"{TRACE}?seconds=1&format=live")
        arguments = ["trace", "--url", server.url, "--seconds", "1", "--out", str(file)]
        result = CliRunner().invoke(cli, arguments)
    assert result.exit_code == 0 and "ui.perfetto.dev" in result.output
    names = [event["name"] for event in json.loads(file.read_bytes())["traceEvents"]]
    assert {"decode", "policy", "KV free", "process_name"} <= set(names)
    assert any(name.startswith("request cmpl-") for name in names)
    told = msgspec.json.decode(live.result().content, type=TraceFile).events
    assert told[0].first and any(engine.steps for event in told for engine in event.engines)
    assert sum(len(engine.requests) for event in told for engine in event.engines)


def test_a_server_that_is_not_there_is_one_line(tmp_path: Path) -> None:
    out = str(tmp_path / "trace.json")
    result = CliRunner().invoke(cli, ["trace", "--url", "http://127.0.0.1:9", "--out", out])
    assert result.exit_code == 1 and "no answer from http://127.0.0.1:9" in result.output
