"""Several processes that serve HTTP for one fleet: `--api-workers`."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pytest
from running_server import eventually
from server_process import ServerProcess

from turnout.config import EngineConfig, ModelConfig, ServerConfig
from turnout.core.errors import ConfigError
from turnout.server.serve import serve

SCRIPT = """
import json, sys
from turnout.config import EngineConfig, ServerConfig
from turnout.core.errors import TurnoutError
from turnout.server.serve import serve

model, server, factory = sys.argv[1:]
try:
    code = serve(EngineConfig(model=model), ServerConfig(**json.loads(server)), factory=factory)
except TurnoutError as error:
    code = f"Error: {error}"
assert "torch" not in sys.modules
sys.exit(code)
"""

Launch = Callable[..., ServerProcess]


@pytest.fixture
def launch(folder: Path) -> Iterator[Launch]:
    """launch(**server): fields of the server's configuration."""
    launched: list[ServerProcess] = []

    def launch(**server: object) -> ServerProcess:
        named = {"served_model_name": ["polly", "parrot"]}
        config = {"port": 0, "api_workers": 2, "shutdown_timeout": 0, **named, **server}
        launched.append(ServerProcess(SCRIPT, folder, json.dumps(config), start_new_session=True))
        return launched[-1]

    yield launch
    for process in launched:
        process.end()


@pytest.fixture
def temporary(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Where servers make temporary files; a socket's path may have 107 characters, too few for `tmp_path`."""
    with tempfile.TemporaryDirectory(prefix="t") as folder:
        monkeypatch.setenv("TMPDIR", folder)
        yield Path(folder)


def pipes_of(pid: int) -> int:
    """How many descriptors of a process are ends of pipes."""
    descriptors = Path(f"/proc/{pid}/fd").iterdir()
    return sum("pipe:" in os.readlink(descriptor) for descriptor in descriptors)


def fronts(server: ServerProcess) -> list[int]:
    return [pid for pid in server.children() if "turnout.server.front" in command(pid)]


def command(pid: int) -> str:
    return Path(f"/proc/{pid}/cmdline").read_text()


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().split(")")[-1].split()[0] != "Z"
    except OSError:
        return False


class Stream:
    """A request in the background, on a connection of its own."""

    def __init__(self, url: str, tokens: int, **headers: str) -> None:
        self.lines: list[str] = []
        self.broken: Exception | None = None
        self._url, self._headers = url, headers
        self._body = {"prompt": "abc", "max_tokens": tokens, "stream": True, "user": "slow"}
        self._thread = threading.Thread(target=self._read)
        self._thread.start()

    def _read(self) -> None:
        url = f"{self._url}/v1/completions"
        try:
            with httpx.stream("POST", url, json=self._body, headers=self._headers, timeout=30) as response:
                self.lines.extend(line for line in response.iter_lines() if line)
        except httpx.HTTPError as error:
            self.broken = error

    def text(self) -> str:
        """All that came, once it has ended."""
        self.wait()
        events = [line.removeprefix("data: ") for line in self.lines]
        assert self.broken is None and events[-1] == "[DONE]", (self.broken, events[-2:])
        return "".join(json.loads(event)["choices"][0]["text"] for event in events[:-1])

    def wait(self) -> None:
        self._thread.join(30)


def figure(url: str, name: str) -> float:
    """The sum of a metric's samples."""
    lines = httpx.get(f"{url}/metrics", timeout=20).text.splitlines()
    return sum(float(line.split()[-1]) for line in lines if line.startswith(f"turnout:{name}"))


def begun_streams(url: str, tokens: int, count: int = 12) -> list[Stream]:
    streams = [Stream(url, tokens) for _ in range(count)]
    eventually(lambda: all(stream.lines for stream in streams), 20)
    return streams


def test_requests_that_are_answered_or_passed_on(launch: Launch) -> None:
    server = launch(api_key=["secret"])
    url, key = server.url(), {"Authorization": "Bearer secret"}
    assert len(fronts(server)) == 2
    assert httpx.get(f"{url}/v1/models").status_code == 401
    with httpx.Client(headers=key, base_url=url, timeout=20) as client:
        models = client.get("/v1/models")
        assert models.json()["data"][0]["id"] == "polly"
        assert [len(models.headers.get_list(name)) for name in ("date", "server")] == [1, 1]
        body = {"model": "parrot", "prompt": "abc", "max_tokens": 3}
        whole = client.post("/v1/completions", json=body).json()
        assert (whole["choices"][0]["text"], whole["model"]) == ("abc", "polly")
        assert httpx.post(f"{url}/v1/completions", json=body).status_code == 401
        assert client.post("/v1/completions", json={"prompt": []}).status_code == 400
        refused = client.post("/v1/completions", json={"prompt": "a" * 600, "max_tokens": 3})
        assert refused.status_code == 400 and "512" in refused.text
        refused = client.post("/v1/completions", json={"prompt": "a" * 512, "max_tokens": 3})  # by the engine
        assert refused.json()["error"]["code"] == "context_length_exceeded"


def test_a_request_of_http_1_0_is_passed_on_without_a_host(launch: Launch) -> None:
    """The other end takes HTTP/1.1 alone, which has one."""
    address = httpx.URL(launch().url())
    with socket.create_connection((address.host, address.port or 0), timeout=20) as connection:
        connection.sendall(b"GET /health HTTP/1.0\r\n\r\n")
        assert connection.recv(2**16).startswith(b"HTTP/1.1 200 ")


@pytest.mark.slow
def test_all_streams_of_a_dead_engine_go_on(launch: Launch) -> None:
    server = launch(engine_restarts=3)
    url = server.url()
    streams = begun_streams(url, 60)
    (engine,) = set(server.children()) - set(fronts(server))
    os.kill(engine, signal.SIGKILL)
    assert {stream.text() for stream in streams} == {"abc" * 20}
    assert figure(url, "generation_tokens_total") == 12 * 60
    assert figure(url, "request_success_total") == 12


@pytest.mark.slow
def test_a_front_that_is_killed_takes_only_its_own_clients_along(launch: Launch) -> None:
    server = launch()
    url = server.url()
    streams = begun_streams(url, 120)
    before = figure(url, "generation_tokens_total")
    killed, left = fronts(server)
    os.kill(killed, signal.SIGKILL)
    eventually(lambda: "API worker" in server.text() and "starting another in 1 s" in server.text())
    for stream in streams:
        stream.wait()
    broken = [stream for stream in streams if stream.broken is not None]
    whole = [stream for stream in streams if stream.broken is None]
    assert {stream.text() for stream in whole} <= {"abc" * 40}
    eventually(lambda: httpx.get(f"{url}/load").json()["server_load"] == 0)
    eventually(lambda: figure(url, "num_requests_running") == 0)  # the engine was told
    eventually(lambda: "serves again" in server.text(), 20)
    now = fronts(server)
    assert left in now and killed not in now and len(now) == 2
    assert broken or whole
    assert figure(url, "generation_tokens_total") >= before * 0.4  # those it told of last are kept
    assert [Stream(url, 3).text() for _ in range(6)] == ["abc"] * 6


def test_what_a_dead_front_has_measured_counts_once(launch: Launch) -> None:
    """It counted twice until another front was there, and then the counters went back."""
    server = launch()
    url = server.url()
    for stream in [Stream(url, 20) for _ in range(12)]:
        stream.wait()
    whole = figure(url, "generation_tokens_total")
    os.kill(fronts(server)[0], signal.SIGKILL)
    eventually(lambda: "starting another in 1 s" in server.text())
    assert figure(url, "generation_tokens_total") == whole == 240
    eventually(lambda: "serves again" in server.text(), 20)
    assert figure(url, "generation_tokens_total") == whole


def test_a_front_that_is_killed_leaves_nothing(launch: Launch, temporary: Path) -> None:
    """A pipe to it stayed open, and its socket stayed in the folder."""
    server = launch()
    url = server.url()
    (folder,) = temporary.glob("turnout-*")
    pipes, sockets = pipes_of(server.popen.pid), len([*folder.iterdir()])
    for number, killed in enumerate(fronts(server), start=1):
        Stream(url, 20).wait()
        assert figure(url, "generation_tokens_total") == 20 * number  # each front has told now
        os.kill(killed, signal.SIGKILL)
        eventually(lambda number=number: server.text().count("serves again") == number, 20)
        eventually(lambda: pipes_of(server.popen.pid) == pipes and len([*folder.iterdir()]) == sockets)
    assert figure(url, "generation_tokens_total") == 40


def test_a_killed_main_process_leaves_nothing(launch: Launch, temporary: Path) -> None:
    """The folder of its sockets stayed."""
    server = launch()
    server.url()
    children = server.children()
    assert len(children) == 3
    assert [*temporary.glob("turnout-*/inside")]
    server.popen.kill()
    eventually(lambda: not any(map(alive, children)))
    eventually(lambda: not [*temporary.glob("turnout-*")])


@pytest.mark.parametrize("number", [signal.SIGTERM, pytest.param(signal.SIGINT, marks=pytest.mark.slow)])
def test_streams_end_before_the_server_does(launch: Launch, number: signal.Signals) -> None:
    """A signal to the whole group: as a terminal sends Ctrl-C, and systemd SIGTERM."""
    server = launch(shutdown_timeout=20)
    url = server.url()
    children = server.children()
    streams = begun_streams(url, 40)
    os.killpg(server.popen.pid, number)
    eventually(lambda: "another signal ends them at once" in server.text())
    refused = httpx.post(f"{url}/v1/completions", json={"prompt": "a"}, timeout=20)
    assert refused.status_code == 503 and "shutting down" in refused.text
    assert httpx.get(f"{url}/health").json()["status"] == "draining"
    assert {stream.text() for stream in streams} == {"abc" * 13 + "a"}
    assert server.wait() == 0
    assert not any(map(alive, children))
    assert "Traceback" not in server.text()


def test_a_second_signal_ends_all_at_once_with_an_error_for_each_client(launch: Launch) -> None:
    """They were cut off: the processes that have their connections were killed first."""
    server = launch(shutdown_timeout=20)
    url = server.url()
    streams = begun_streams(url, 400)
    server.popen.send_signal(signal.SIGTERM)
    eventually(lambda: "another signal ends them at once" in server.text())
    began = time.monotonic()
    server.popen.send_signal(signal.SIGTERM)
    assert server.wait() == 0
    assert time.monotonic() - began < 10
    for stream in streams:
        stream.wait()
        error, done = stream.lines[-2:]
        assert stream.broken is None and done == "data: [DONE]" and "the server is shutting down" in error


@pytest.mark.slow
def test_limits_of_keys_are_the_whole_servers(launch: Launch, tmp_path: Path) -> None:
    keys = tmp_path / "keys.json"  # the key's name is the client's, whom the engine serves slowly
    keys.write_text(json.dumps([{"key": "k", "name": "slow", "requests_in_flight": 3}]))
    server = launch(api_key_file=str(keys))
    url = server.url()
    key = {"Authorization": "Bearer k"}
    streams = [Stream(url, 300, **key) for _ in range(3)]
    eventually(lambda: all(stream.lines for stream in streams), 20)
    body = {"prompt": "abc", "max_tokens": 3}
    refused = [httpx.post(f"{url}/v1/completions", json=body, headers=key, timeout=20) for _ in range(6)]
    assert [answer.status_code for answer in refused] == [429] * 6
    assert "3 requests at once" in refused[0].text and refused[0].headers["Retry-After"] == "1"
    assert all(stream.text() == "abc" * 100 for stream in streams)
    eventually(lambda: httpx.post(f"{url}/v1/completions", json=body, headers=key, timeout=20).is_success)
    lines = httpx.get(f"{url}/metrics", timeout=20).text.splitlines()
    assert 'turnout:key_tokens_total{key="slow"} 915.0' in lines
    assert 'turnout:key_requests_total{key="slow"} 4.0' in lines


@pytest.mark.slow
def test_limits_that_change_hold_at_once(launch: Launch, tmp_path: Path) -> None:
    """They held once a request came that no front answers itself."""
    keys = tmp_path / "keys.json"

    def write(requests: int) -> None:
        keys.write_text(json.dumps([{"key": "k", "requests_per_minute": requests}]))

    write(2)
    url, headers = launch(api_key_file=str(keys)).url(), {"Authorization": "Bearer k"}

    def status() -> int:
        body = {"prompt": "abc", "max_tokens": 1}
        return httpx.post(f"{url}/v1/completions", json=body, headers=headers, timeout=20).status_code

    assert [status() for _ in range(3)] == [200, 200, 429]
    write(1000)
    eventually(lambda: status() == 200)
    write(3)
    eventually(lambda: status() == 429)


@pytest.mark.slow
def test_figures_can_be_asked_for_while_a_front_starts(launch: Launch) -> None:
    """They were an error, with a traceback in the log."""
    server = launch()
    url = server.url()
    os.kill(fronts(server)[0], signal.SIGKILL)
    eventually(lambda: "starting another" in server.text())
    statuses = []
    while "serves again" not in server.text():
        statuses.append(httpx.get(f"{url}/metrics", timeout=20).status_code)
    assert set(statuses) == {200} and "Traceback" not in server.text()


@pytest.mark.parametrize(
    ("config", "named"),
    [
        ({"ab": ["b:scheduler=sjf"]}, "--ab"),
        ({"lazy": True}, "--lazy"),
        ({"unload_after": 5.0}, "--unload-after"),
        ({"max_connections_per_address": 3}, "--max-connections-per-address"),
    ],
)
def test_what_several_processes_cannot_serve_is_refused(config: dict[str, object], named: str) -> None:
    with pytest.raises(ConfigError, match=f"--api-workers 2 does not go together with {named}; leave"):
        serve(EngineConfig(), ServerConfig(port=0, api_workers=2, **config))


def test_several_models_are_refused() -> None:
    server = ServerConfig(port=0, api_workers=2)
    models = [ModelConfig(name, EngineConfig(), server) for name in "ab"]
    with pytest.raises(ConfigError, match="several models"):
        serve(EngineConfig(), server, models=models)


def test_a_front_without_a_fleet_ends() -> None:
    """Its standard input ends with the fleet's process."""
    ended = subprocess.run([sys.executable, "-m", "turnout.server.front"], stdin=subprocess.DEVNULL)
    assert ended.returncode == 0
