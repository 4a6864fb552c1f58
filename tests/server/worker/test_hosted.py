"""A worker that something else hosts: its secret key is in no file that may be left."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from turnout.config import EngineConfig
from turnout.core.interfaces.launcher import EngineOrder
from turnout.server.engine.remote.link import made_pair
from turnout.server.worker import hosted

READ = """
import sys
from turnout.plugins.launchers.static import read_key_file
print(*read_key_file(*sys.argv[1:]))
"""


@pytest.mark.parametrize("hosts", [{}, {"tcp://10.0.0.2:7000": "k" * 40}], ids=["here", "elsewhere"])
def test_keys_of_ranks_elsewhere_are_in_a_file_without_a_name(
    hosts: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Processes below read it. Previously a file was left behind when the worker was killed."""
    given: list[EngineConfig] = []

    class Worker:
        def __init__(self, door: object, order: object, config: EngineConfig, *, once: bool) -> None:
            given.append(config)

        async def run(self) -> None:
            assert not list(tmp_path.iterdir())

    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(hosted, "start_logging", lambda *_, **__: None)
    monkeypatch.setattr(hosted, "Worker", Worker)
    worker = hosted.HostedWorker("127.0.0.1", EngineOrder("echo_engine:build", "info", public=made_pair()[0]))
    worker.run(EngineConfig(model="m").model_dump_json(), hosts)
    path = given[0].rank_key_file
    assert bool(path) == bool(hosts)
    for host, key in hosts.items():
        below = [sys.executable, "-c", READ, path, host]
        done = subprocess.run(below, capture_output=True, text=True, check=True)
        assert done.stdout.split()[:2] == [key, worker.public]
