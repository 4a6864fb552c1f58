"""A server whose system has no room left goes on once it has some."""

from __future__ import annotations

import os
import resource
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx
import psutil
import pytest
from running_server import eventually
from tiny_server import TinyServer, serving

STANDARD = 3
"""Descriptors that every process has. A limit of so many leaves those that are open, and allows no other."""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TinyServer]:
    log = tmp_path_factory.mktemp("server") / "log"
    with serving("--kv-memory", "64MiB", "--log-level", "debug", log=log) as server:
        yield server


def engine_of(server: TinyServer) -> psutil.Process:
    children = server.process.children()
    (engine,) = (child for child in children if "engine.main" in " ".join(child.cmdline()))
    return engine


def descriptors(process: psutil.Process) -> int:
    """The highest that the process has."""
    return max(int(name) for name in os.listdir(f"/proc/{process.pid}/fd"))


@contextmanager
def limited(process: psutil.Process, most: int, kind: int = resource.RLIMIT_NOFILE) -> Iterator[None]:
    """By default, no descriptor from `most` on is given to the process."""
    before = resource.prlimit(process.pid, kind)
    resource.prlimit(process.pid, kind, (most, before[1]))
    try:
        yield
    finally:
        resource.prlimit(process.pid, kind, before)


def choosing(*choices: str) -> dict[str, Any]:
    return {"prompt": "a", "max_tokens": 20, "guided_choice": choices}


def text_of(server: TinyServer, body: dict[str, Any]) -> str:
    response = server.post("/v1/completions", body)
    assert response.status_code == 200, response.text
    text: str = response.json()["choices"][0]["text"]
    return text


@pytest.mark.slow
def test_a_form_while_no_descriptor_is_left(server: TinyServer) -> None:
    """A compile process that runs already needs none."""
    assert text_of(server, choosing("up", "down")) in ("up", "down")
    with limited(engine_of(server), STANDARD):
        assert text_of(server, choosing("red", "green")) in ("red", "green")
    server.check()


@pytest.mark.slow
def test_a_form_whose_compile_process_no_descriptor_is_left_for(server: TinyServer) -> None:
    """It blamed the client, with 400."""
    assert text_of(server, choosing("up", "down")) in ("up", "down")
    engine = engine_of(server)
    with limited(engine, STANDARD):
        helpers = engine.children(recursive=True)
        for helper in helpers:
            helper.kill()
        psutil.wait_procs(helpers, 10)
        refused = server.post("/v1/completions", choosing("north", "south"))
        assert refused.status_code == 503, refused.text
        assert refused.headers["Retry-After"] == "1"
        assert "no process can be started" in refused.json()["error"]["message"]
        assert text_of(server, choosing("up", "down")) in ("up", "down")  # it has been compiled
    assert text_of(server, choosing("north", "south")) in ("north", "south")
    server.check()


@pytest.mark.slow
def test_an_engine_that_dies_while_no_descriptor_is_left(server: TinyServer) -> None:
    """ZeroMQ's objects were half made. When they were collected as garbage, the server hung for ever."""
    taken = descriptors(server.process)
    with limited(server.process, taken + 1):
        engine_of(server).kill()
        for room in (1, 8):  # each step of the start finds none left in its turn
            with limited(server.process, taken + room):
                said = server.text().count("no engine can be started")
                eventually(lambda said=said: server.text().count("no engine can be started") > said, 30)
    eventually(lambda: "another engine has taken over" in server.text(), 60)
    time.sleep(0.1)
    server.check()


@pytest.mark.slow
def test_an_engine_that_dies_while_no_byte_can_be_written(server: TinyServer) -> None:
    """Lines of the log are lost, and no request."""
    with limited(server.process, 0, resource.RLIMIT_FSIZE):
        time.sleep(0.5)  # until what was written before has been read
        log = server.text()
        engine_of(server).kill()
        eventually(lambda: httpx.get(f"{server.url}/health").json()["status"] == "restarting", 30)
        eventually(lambda: httpx.get(f"{server.url}/health").json()["status"] == "ok", 60)
        assert server.answer() == server.tokens
        assert server.text() == log, server.text()[len(log) :]
    server.check()
