"""A server that is told to stop: requests that it has may end, for some time, and new ones are refused."""

from __future__ import annotations

import json
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from running_server import eventually
from server_process import ServerProcess

SCRIPT = """
import sys
from turnout.config import EngineConfig, ServerConfig
from turnout.server.serve import serve

model, timeout, replicas, factory = sys.argv[1:]
config = ServerConfig(port=0, shutdown_timeout=timeout, replicas=replicas)
sys.exit(serve(EngineConfig(model=model), config, factory=factory))
"""

Launch = Callable[..., ServerProcess]
pytestmark = pytest.mark.usefixtures("hangs_up")
BY_EACH = pytest.mark.parametrize(
    "number", [pytest.param(signal.SIGINT, marks=pytest.mark.slow), signal.SIGTERM, signal.SIGHUP]
)


@pytest.fixture
def launch(folder: Path) -> Iterator[Launch]:
    """launch(shutdown_timeout, replicas, **options): `options` are the process's."""
    launched: list[ServerProcess] = []

    def launch(timeout: float, replicas: int = 1, **options: Any) -> ServerProcess:
        launched.append(ServerProcess(SCRIPT, folder, timeout, replicas, **options))
        return launched[-1]

    yield launch
    for process in launched:
        process.end()


class Stream:
    """A request for `tokens` tokens, 20 ms each, in the background."""

    def __init__(self, url: str, tokens: int) -> None:
        self.lines: list[str] = []
        self._body = {"prompt": "a", "max_tokens": tokens, "stream": True, "user": "slow"}
        self._thread = threading.Thread(target=self._read, args=(url,))
        self._thread.start()
        eventually(lambda: self.lines)

    def _read(self, url: str) -> None:
        with httpx.stream("POST", f"{url}/v1/completions", json=self._body, timeout=20) as response:
            self.lines.extend(line for line in response.iter_lines() if line)

    def text(self) -> str:
        """All that came, once it has ended; it must have been whole but for the error that may end it."""
        self._thread.join(20)
        *events, done = self.lines
        assert done == "data: [DONE]"
        chunks = [json.loads(event.removeprefix("data: ")) for event in events]
        return "".join(chunk["choices"][0]["text"] if "choices" in chunk else " [ERROR]" for chunk in chunks)


def ask(url: str) -> httpx.Response:
    return httpx.post(f"{url}/v1/completions", json={"prompt": "b", "max_tokens": 1}, timeout=20)


@BY_EACH
def test_what_runs_may_end_and_what_is_new_is_refused(launch: Launch, number: signal.Signals) -> None:
    """Every stream ended with an error at once."""
    server = launch(20)
    url = server.url()
    stream = Stream(url, 60)
    server.popen.send_signal(number)
    eventually(lambda: httpx.get(f"{url}/health").status_code == 503)
    assert httpx.get(f"{url}/health").json() == {
        "status": "draining",
        "reason": "the server is shutting down",
    }
    assert httpx.get(f"{url}/live").status_code == 200, "a restart would end what it drains"
    refused = ask(url)
    assert refused.status_code == 503
    assert refused.headers["connection"] == "close" and refused.headers["retry-after"] == "1"
    assert refused.json()["error"] == {
        "message": "the server is shutting down and takes no more requests; retry, or ask another server",
        "type": "server_error",
        "param": None,
        "code": "shutting_down",
    }
    assert stream.text() == 60 * "a"
    assert server.wait() == 0
    assert "requests may take up to 20 s to end; another signal ends them at once" in server.text()


def test_what_takes_longer_than_the_timeout_ends_with_an_error(launch: Launch) -> None:
    server = launch(0.3)
    stream = Stream(server.url(), 500)
    server.popen.send_signal(signal.SIGTERM)
    assert server.wait() == 0
    assert stream.text().endswith(" [ERROR]")
    assert any("shutting down" in line for line in stream.lines)


@pytest.mark.parametrize("replicas", [1, 2])
def test_a_second_signal_ends_it_at_once(launch: Launch, replicas: int) -> None:
    """Each of several replicas was said to have failed."""
    server = launch(20, replicas)
    stream = Stream(server.url(), 500)
    server.popen.send_signal(signal.SIGTERM)
    eventually(lambda: "another signal" in server.text())
    started = time.monotonic()
    server.popen.send_signal(signal.SIGTERM)
    assert server.wait() == 0
    assert time.monotonic() - started < 2
    assert "Traceback" not in server.text()
    assert "has failed" not in server.text()
    assert len(stream.lines) < 500


def test_a_server_without_requests_does_not_wait(launch: Launch) -> None:
    server = launch(20)
    assert ask(server.url()).status_code == 200
    started = time.monotonic()
    server.popen.send_signal(signal.SIGTERM)
    assert server.wait() == 0
    assert time.monotonic() - started < 3


@BY_EACH
def test_supervisors_that_signal_the_engine_too(launch: Launch, number: signal.Signals) -> None:
    """As a terminal does, and systemd: the engine's process must stay for the requests that may end."""
    server = launch(20, start_new_session=True)
    stream = Stream(server.url(), 60)
    os.killpg(server.popen.pid, number)
    assert stream.text() == 60 * "a"
    assert server.wait() == 0
    assert "another engine" not in server.text()


def test_a_terminal_that_closes_may_say_so_twice(launch: Launch) -> None:
    """The system tells the group, and the shell each of its jobs. SIGHUP ended the server at once."""
    server = launch(20)
    stream = Stream(server.url(), 60)
    for _ in range(2):
        server.popen.send_signal(signal.SIGHUP)
        time.sleep(0.2)
    assert stream.text() == 60 * "a"
    assert server.wait() == 0


def ignore_hangups() -> None:
    """As `nohup` does."""
    signal.signal(signal.SIGHUP, signal.SIG_IGN)


def test_a_server_under_nohup_outlives_its_terminal(launch: Launch) -> None:
    server = launch(20, preexec_fn=ignore_hangups, start_new_session=True)
    url = server.url()
    os.killpg(server.popen.pid, signal.SIGHUP)
    time.sleep(0.5)
    assert ask(url).status_code == 200
    assert server.popen.poll() is None
