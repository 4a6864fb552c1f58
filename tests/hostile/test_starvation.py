"""A server whose system has no room left goes on once it has some."""

from __future__ import annotations

import os
import resource
import time
from collections.abc import Iterator

import pytest
from running_server import eventually
from tiny_server import TinyServer, serving


@pytest.fixture(scope="module")
def server() -> Iterator[TinyServer]:
    with serving("--kv-memory", "64MiB") as server:
        yield server


def test_an_engine_that_dies_while_no_descriptor_is_left(server: TinyServer) -> None:
    """ZeroMQ's objects were half made. When they were collected as garbage, the server hung for ever."""
    (engine,) = (child for child in server.process.children() if "engine.main" in " ".join(child.cmdline()))
    before = resource.prlimit(server.process.pid, resource.RLIMIT_NOFILE)
    taken = max(int(name) for name in os.listdir(f"/proc/{server.process.pid}/fd"))
    for room in (1, 8):  # each step of the start finds none left in its turn
        resource.prlimit(server.process.pid, resource.RLIMIT_NOFILE, (taken + room, before[1]))
        if engine.is_running():
            engine.kill()
        said = server.text().count("no engine can be started")
        eventually(lambda said=said: server.text().count("no engine can be started") > said, 30)
    resource.prlimit(server.process.pid, resource.RLIMIT_NOFILE, before)
    eventually(lambda: "another engine has taken over" in server.text(), 60)
    time.sleep(0.1)
    server.check()
