"""``turnout simulate --trace`` and ``turnout view``: a simulated run in the console."""

from __future__ import annotations

import socket
import threading
from codecs import BOM_UTF8
from pathlib import Path

import httpx
import msgspec
import pytest
from click.testing import CliRunner

from turnout.cli.main import cli
from turnout.cli.view import _checked, _server
from turnout.core.engine.recording.perfetto import perfetto_trace
from turnout.core.types.live.event import TraceFile

WORKLOAD = "poisson:rate=30,requests=40,prompt=100,output=uniform:5:40"


def simulate(*arguments: str) -> str:
    common = ["simulate", "--workload", WORKLOAD, "--cost-model", "h100-7b"]
    result = CliRunner().invoke(cli, [*common, *arguments])
    assert result.exit_code == 0, result.output
    return result.output


def test_a_simulation_is_recorded_as_a_server_is_and_its_figures_stay_the_same(tmp_path: Path) -> None:
    file = tmp_path / "out.json"
    traced = simulate("--trace", str(file), "--replicas", "2", "--scheduler", "sjf")
    assert traced == simulate("--replicas", "2", "--scheduler", "sjf")

    told = msgspec.json.decode(file.read_bytes(), type=TraceFile).events
    engines = [engine for event in told for engine in event.engines]
    assert [event.at for event in told] == sorted(event.at for event in told)
    assert told[0].first and not any(event.first for event in told[1:])
    assert {engine.name for engine in engines} == {"replica-0", "replica-1"}
    ended = [request for engine in engines for request in engine.requests if request.state == "ended"]
    assert len(ended) == 40 and {request.prompt_tokens for request in ended} == {100}
    assert sum(request.output_tokens for request in ended) == sum(
        max(engine.stats.output_tokens for engine in engines if engine.name == name)
        for name in ("replica-0", "replica-1")
    )
    assert any(step.why for engine in engines for step in engine.steps)
    assert perfetto_trace(told)["traceEvents"]


def test_arms_of_a_simulation_are_told_apart(tmp_path: Path) -> None:
    file = tmp_path / "out.json"
    simulate("--trace", str(file), "--arm", "base", "--arm", "long:scheduler=ljf")
    told = msgspec.json.decode(file.read_bytes(), type=TraceFile).events
    schedulers = {engine.arm: engine.scheduler for event in told for engine in event.engines}
    assert schedulers == {"base": "fcfs", "long": "ljf"}


def test_the_console_is_served_with_the_file_and_nothing_else() -> None:
    with _server(b'{"turnout_trace":1}', 0) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            with httpx.Client(base_url=f"http://127.0.0.1:{server.server_port}") as client:
                assert client.get("/console/trace.json").json() == {"turnout_trace": 1}
                page = client.get("/console/?trace=trace.json")
                assert page.status_code == 200 and "text/html" in page.headers["content-type"]
                assert "default-src 'none'" in page.headers["content-security-policy"]
                for path in ("/", "/console/../view.py", "/console/%2e%2e/view.py", "/etc/passwd"):
                    assert client.get(path).status_code == 404
                elsewhere = client.get("/console/trace.json", headers={"Host": "evil.example"})
                assert elsewhere.status_code == 404
        finally:
            server.shutdown()
            thread.join()


def test_a_browser_that_leaves_is_no_error(capfd: pytest.CaptureFixture[str]) -> None:
    """A page that was closed or loaded again while the trace came printed a traceback."""
    with _server(b"x" * 2**25, 0) as server:
        server.daemon_threads = False  # so that the end of the block waits for the answer
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            with socket.create_connection(server.server_address) as browser:
                browser.sendall(b"GET /console/trace.json HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
                assert browser.recv(100)
        finally:
            server.shutdown()
            thread.join()
    assert capfd.readouterr().err == ""


def test_a_byte_order_mark_does_no_harm(tmp_path: Path) -> None:
    file = tmp_path / "trace.json"
    file.write_bytes(BOM_UTF8 + b'{"turnout_trace":1,"events":[{"at":1.0}]}')
    assert _checked(file).startswith(b"{")


@pytest.mark.parametrize("content", ["", "[]", "{}", '{"turnout_trace": 2, "events": []}', "\x00"])
def test_a_file_that_is_no_trace_is_refused_in_a_line(content: str, tmp_path: Path) -> None:
    file = tmp_path / "other.json"
    file.write_text(content)
    result = CliRunner().invoke(cli, ["view", str(file), "--no-browser"])
    assert result.exit_code == 2 and "is no trace for the console" in result.output
    assert "turnout simulate --trace" in result.output


def test_a_trace_of_nothing_is_said_to_be_one(tmp_path: Path) -> None:
    file = tmp_path / "empty.json"
    file.write_text('{"turnout_trace": 1, "events": []}')
    result = CliRunner().invoke(cli, ["view", str(file), "--no-browser"])
    assert result.exit_code == 2 and "has no events" in result.output
