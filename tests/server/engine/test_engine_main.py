"""The engine's process, by itself."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from echo_engine import STARTS
from running_server import FACTORY, eventually

from turnout.config import EngineConfig
from turnout.core.types.messages import Failed
from turnout.server.engine.channel import ServerChannel

COMMAND = [sys.executable, "-m", "turnout.server.engine.main"]


def test_without_a_channel_it_ends_with_a_line() -> None:
    """Where an address is wrong, or no descriptor is left for a socket."""
    command = [*COMMAND, "nonsense://there", "--factory", "none:none"]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=120)
    assert done.returncode == 1
    assert "the engine has no channel to the server: Protocol not supported" in done.stderr
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.parametrize(("how", "bad_config"), [("is refused", True), ("finds no room", False)])
def test_too_little_memory_is_no_wrong_configuration(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str, bad_config: bool
) -> None:
    """The server's exit code was that of a wrong command, after which no supervisor starts it again."""
    (starts := tmp_path / "starts").write_text(how)
    monkeypatch.setenv(STARTS, str(starts))
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[2] / "support"))
    address = f"ipc://{tmp_path}/engine"
    channel, told = ServerChannel(address), []
    config = EngineConfig(model="echo").model_dump_json().encode() + b"\n"
    with subprocess.Popen([*COMMAND, address, "--factory", FACTORY], stdin=subprocess.PIPE) as engine:
        assert engine.stdin is not None
        engine.stdin.write(config)
        engine.stdin.flush()
        eventually(lambda: told.extend(each for events in channel.receive() for each in events) or told)
        assert engine.wait(30) == 1
    channel.close()
    (failed,) = [event for event in told if isinstance(event, Failed)]
    assert failed.bad_config is bad_config
