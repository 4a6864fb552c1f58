"""The whole life of a server process: start, announcement, signals, exit; and no process is left behind."""

from __future__ import annotations

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

from turnout.config import EngineConfig, ServerConfig
from turnout.core.errors import TurnoutError
from turnout.server import lifecycle
from turnout.server.serve import serve

SCRIPT = """
import sys
from turnout.config import EngineConfig, ServerConfig
from turnout.core.errors import TurnoutError
from turnout.server.serve import serve

model, port, restarts, factory = sys.argv[1:]
try:
    named = {"served_model_name": ["polly", "parrot"], "shutdown_timeout": 0}
    config = ServerConfig(port=int(port), engine_restarts=int(restarts), **named)
    code = serve(EngineConfig(model=model), config, factory=factory)
except TurnoutError as error:
    code = f"Error: {error}"
assert "torch" not in sys.modules
sys.exit(code)
"""


def test_standard_output_that_cannot_be_written(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The announcement ended the server."""
    with open("/dev/full", "w") as full:
        monkeypatch.setattr(sys, "stdout", full)
        lifecycle._print("Turnout serving\n")
        lifecycle._print("more\n")  # the exit of the process writes again, too
    assert "standard output cannot be written (No space left on device): Turnout serving" in caplog.text


Launch = Callable[..., ServerProcess]


@pytest.fixture
def launch() -> Iterator[Launch]:
    """launch(model, port, restarts, **options): `options` are the process's."""
    launched: list[ServerProcess] = []

    def launch(model: Path, port: int = 0, restarts: int = 0, **options: bool) -> ServerProcess:
        launched.append(ServerProcess(SCRIPT, model, port, restarts, **options))
        return launched[-1]

    yield launch
    for process in launched:
        process.end()


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().split(")")[-1].split()[0] != "Z"
    except OSError:
        return False


def stream_in_background(url: str) -> list[str]:
    """A request that would take ten seconds; returns the lines as they come."""
    lines: list[str] = []
    body = {"prompt": "a", "max_tokens": 500, "stream": True, "user": "slow"}

    def read() -> None:
        with httpx.stream("POST", f"{url}/v1/completions", json=body, timeout=20) as response:
            lines.extend(iter(response.iter_lines()))
            lines.append("END")

    threading.Thread(target=read).start()
    return lines


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_signals_stop_both_processes(
    launch: Launch, folder: Path, number: signal.Signals, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    server = launch(folder)
    url, engine = server.url(), server.engine()
    assert "an echo engine\n" in server.output
    (card,) = httpx.get(f"{url}/v1/models").json()["data"]
    assert (card["id"], card["aliases"]) == ("polly", ["parrot"])
    lines = stream_in_background(url)
    eventually(lambda: lines)
    started = time.monotonic()
    server.popen.send_signal(number)
    assert server.wait() == 0
    assert time.monotonic() - started < 3
    assert not alive(engine)
    eventually(lambda: lines[-1:] == ["END"])
    assert any("shutting down" in line for line in lines) and "data: [DONE]" in lines
    assert "Traceback" not in server.text()
    assert not list(tmp_path.iterdir())


def test_ctrl_c_reaches_the_whole_group(launch: Launch, folder: Path) -> None:
    """A terminal signals both processes at once."""
    server = launch(folder, start_new_session=True)
    server.url()
    os.killpg(server.popen.pid, signal.SIGINT)
    assert server.wait() == 0
    assert "Traceback" not in server.text()


@pytest.mark.parametrize(
    "delay", [0.3, *(pytest.param(each, marks=pytest.mark.slow) for each in (0.05, 0.6))]
)
def test_signals_during_the_start(launch: Launch, folder: Path, delay: float) -> None:
    server = launch(folder)
    engine = server.engine()
    time.sleep(delay)
    server.popen.send_signal(signal.SIGTERM)
    assert server.wait() == 0, server.text()
    assert "Traceback" not in server.text()
    eventually(lambda: not alive(engine))


def test_a_server_that_is_killed_leaves_no_orphan(launch: Launch, folder: Path) -> None:
    server = launch(folder)
    server.url()
    engine = server.engine()
    server.popen.kill()
    eventually(lambda: not alive(engine))


def test_an_engine_that_dies_is_replaced(launch: Launch, folder: Path) -> None:
    server = launch(folder, restarts=3)
    url = server.url()
    lines = stream_in_background(url)
    eventually(lambda: lines)
    first = server.engine()
    os.kill(first, signal.SIGKILL)
    eventually(lambda: server.text().count("another engine has taken over; 1 requests go on"), 15)
    assert server.engine() != first
    before = len(lines)
    eventually(lambda: len(lines) > before)
    server.popen.send_signal(signal.SIGTERM)
    assert server.wait() == 0


def test_an_engine_that_dies_ends_the_server(launch: Launch, folder: Path) -> None:
    server = launch(folder)
    lines = stream_in_background(server.url())
    eventually(lambda: lines)
    os.kill(server.engine(), signal.SIGKILL)
    assert server.wait() == 1
    assert "Error: the engine process was ended by SIGKILL" in server.text()
    eventually(lambda: lines[-1:] == ["END"])
    assert any("SIGKILL" in line for line in lines)


def test_a_port_in_use(launch: Launch, folder: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        server = launch(folder, port)
        assert server.wait() == 1
    assert server.text() == (
        f"Error: cannot listen on 127.0.0.1 port {port}: Address already in use; choose another with --port\n"
    )


def test_a_host_whose_name_is_none() -> None:
    """Python's own refusal of a name with a part that is too long, or empty, came as a traceback."""
    for host in ("a" * 64 + ".example", "a..example"):
        with pytest.raises(TurnoutError, match="is not a valid host name"):
            serve(EngineConfig(), ServerConfig(host=host, port=0))


def test_a_host_of_another_machine() -> None:
    """What to change was said to be the port."""
    with pytest.raises(TurnoutError, match=r"192\.0\.2\.1 port 0: .*; choose another with --host"):
        serve(EngineConfig(), ServerConfig(host="192.0.2.1", port=0))


@pytest.mark.parametrize("workers", [1, 2])
def test_no_folder_for_temporary_files(workers: int, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The error came as a traceback."""
    monkeypatch.setattr(tempfile, "tempdir", None)
    monkeypatch.setattr(tempfile, "_candidate_tempdir_list", lambda: ["/nowhere"])
    with pytest.raises(TurnoutError, match=r"\['/nowhere'\]\. .*; set TMPDIR to one .* emptyDir"):
        serve(EngineConfig(model=str(folder)), ServerConfig(port=0, api_workers=workers))


def test_a_temporary_folder_whose_path_is_too_long(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The error of the sockets of API workers came as a traceback."""
    (deep := tmp_path / ("x" * 100)).mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(deep))
    with pytest.raises(TurnoutError, match=r"x, is too long .* --api-workers; set TMPDIR to a shorter one"):
        serve(EngineConfig(model=str(folder)), ServerConfig(port=0, api_workers=2))


def test_a_model_that_cannot_be_served(launch: Launch, folder: Path, tmp_path: Path) -> None:
    """The engine was told to end while it was leaving already, and put a traceback before the error."""
    (tmp_path / "config.json").write_text("{}")
    server = launch(tmp_path)
    assert server.wait() == 1
    assert server.text().startswith(f"Error: {tmp_path} holds no tokenizer")
    broken = tmp_path / "broken"
    broken.symlink_to(folder)
    server = launch(broken)
    assert server.wait() == 1
    assert server.text() == "Error: this model is broken\n"


def test_the_server_process_needs_no_torch() -> None:
    script = (
        "import sys\n"
        "import turnout.server.serve, turnout.server.lifecycle, turnout.server.app\n"
        "import turnout.server.engine.main\n"
        "assert not {'torch', 'transformers', 'numpy'} & sys.modules.keys()\n"
    )
    subprocess.run([sys.executable, "-c", script], check=True)
