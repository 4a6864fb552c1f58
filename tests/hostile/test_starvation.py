"""A server whose system has no room left goes on once it has some."""

from __future__ import annotations

import os
import resource
import time
from collections.abc import Iterator

import psutil
import pytest
from running_server import eventually
from tiny_server import TinyServer, serving


@pytest.fixture(scope="module")
def server() -> Iterator[TinyServer]:
    with serving("--kv-memory", "64MiB") as server:
        yield server


def engine_of(server: TinyServer) -> psutil.Process:
    children = server.process.children()
    (engine,) = (child for child in children if "engine.main" in " ".join(child.cmdline()))
    return engine


def descriptors(process: psutil.Process) -> int:
    """The highest that the process has."""
    return max(int(name) for name in os.listdir(f"/proc/{process.pid}/fd"))


def test_a_form_for_which_no_descriptor_is_left(server: TinyServer) -> None:
    """It blamed the client, with 400."""
    engine = engine_of(server)
    before = resource.prlimit(engine.pid, resource.RLIMIT_NOFILE)
    resource.prlimit(engine.pid, resource.RLIMIT_NOFILE, (descriptors(engine) + 1, before[1]))
    asked = {"prompt": "a", "max_tokens": 20, "guided_choice": ["red", "green"]}
    refused = server.post("/v1/completions", asked)
    # A compile process that runs already needs no descriptor; one that is to be started does.
    assert refused.status_code == 200 or refused.headers.get("Retry-After") == "1", refused.text
    assert refused.status_code in (200, 503), refused.text
    resource.prlimit(engine.pid, resource.RLIMIT_NOFILE, before)
    served = server.post("/v1/completions", asked)
    assert served.json()["choices"][0]["text"] in asked["guided_choice"]
    server.check()


def test_an_engine_that_dies_while_no_descriptor_is_left(server: TinyServer) -> None:
    """ZeroMQ's objects were half made. When they were collected as garbage, the server hung for ever."""
    engine = engine_of(server)
    before = resource.prlimit(server.process.pid, resource.RLIMIT_NOFILE)
    taken = descriptors(server.process)
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
