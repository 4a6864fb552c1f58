"""Engines on other machines: streams come over the network as they do from here, and outlive a worker."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from asking import COMPLETIONS, events
from running_server import RunningServer, eventually, running
from worker_process import Connect, StartWorker

from turnout.config import EngineConfig, ServerConfig
from turnout.core.interfaces.router import Routable
from turnout.text.tokenizer import Tokenizer

BODY = {"prompt": "abcdefg", "max_tokens": 120, "user": "brisk"}
EXPECTED = ("abcdefg" * 20)[:120]


def text(chunks: list[dict[str, Any]]) -> str:
    return "".join(choice["text"] for chunk in chunks for choice in chunk["choices"])


def states(server: RunningServer) -> dict[str, str]:
    listed = server.http.get("/admin/replicas").json()["replicas"]
    return {replica["name"]: replica["state"] for replica in listed}


def delivered(server: RunningServer) -> int:
    streams = [stream for replica in server.fleet.replicas for stream in replica.client.streams.unfinished]
    return sum(len(output) for stream in streams for output in stream.outputs.values())


def test_a_worker_serves_and_its_file_of_keys_is_for_its_user_alone(
    worker: StartWorker, connect: Connect, keys: Path
) -> None:
    server = connect(worker())
    assert keys.stat().st_mode & 0o777 == 0o600
    assert text(events(server, COMPLETIONS, **{**BODY, "user": "u"})) == EXPECTED
    body = {"prompt": "ab", "max_tokens": 3, "timing": True}
    answer = server.post(COMPLETIONS, **body).json()
    timing = answer["timing"]
    reply = server.post("/admin/replicas", action="add")
    assert reply.status_code == 409 and "name the address of another" in reply.text
    assert 0 <= timing["queued_ms"] <= timing["first_token_ms"] <= timing["finished_ms"] < 5000


@pytest.mark.slow
@pytest.mark.parametrize("whole", [True, False], ids=["the worker", "its engine"])
def test_streams_outlive_a_worker(worker: StartWorker, connect: Connect, whole: bool) -> None:
    """Those of the one that dies go on in the other; it is tried again, and serves again."""
    two = [worker(), worker()]
    server = connect(*two)
    with ThreadPoolExecutor(8) as pool:
        streams = [pool.submit(events, server, COMPLETIONS, **BODY) for _ in range(8)]
        eventually(lambda: delivered(server) > 40)
        if whole:
            two[0].kill()
        else:
            os.kill(two[0].engine, signal.SIGSEGV)
        assert [text(stream.result(60)) for stream in streams] == [EXPECTED] * 8
    if whole:
        eventually(lambda: states(server) == {"0": "restarting", "1": "serving"})
        assert server.post(COMPLETIONS, **BODY).status_code == 200
        worker(listen=two[0].url)
    eventually(lambda: states(server) == {"0": "serving", "1": "serving"}, 40)
    assert server.fleet.replicas[0].client.restarts >= 1
    assert server.post(COMPLETIONS, **BODY).json()["choices"][0]["text"] == EXPECTED


@pytest.mark.slow
def test_a_request_that_kills_a_workers_engine_is_found(worker: StartWorker, connect: Connect) -> None:
    """The worker tells how its engine ended."""
    server = connect(worker(), engine_restarts=3)
    answer = server.post(COMPLETIONS, prompt="x", max_tokens=5, user="killed")
    assert answer.status_code == 500 and "SIGBUS" in answer.text
    eventually(lambda: states(server) == {"0": "serving"}, 20)
    assert server.post(COMPLETIONS, **BODY).status_code == 200


SERVER = """
import asyncio, sys
from turnout.config import EngineConfig
from turnout.core.types.messages import PinPrefix, SetScheduler
from turnout.core.types.request import RequestSpec
from turnout.core.types.sampling_params import SamplingParams
from turnout.plugins.launchers.static import Static
from turnout.server.engine.client import ProcessClient
from turnout.server.fleet.fleet import Fleet

async def main(url, keys):
    def launch(order):
        return ProcessClient(launcher=Static(keys), place=order.place, journal=order.journal)

    fleet = Fleet(launch, 0, workers=[url])
    fleet.configure(EngineConfig(model="echo"))
    await fleet.start()
    await fleet.admin(SetScheduler("sjf"))
    await fleet.admin(PinPrefix("system", [5] * 70))
    params = SamplingParams(max_tokens=400)
    request = RequestSpec(id="r", prompt=[5, 6], params=params, seed=0, client="brisk")
    async for delta in fleet.submit(request):
        print("token", flush=True)

asyncio.run(main(*sys.argv[1:]))
"""
"""A server that changes what it can, and leaves in the middle of a stream."""


def test_the_next_server_of_a_worker_learns_which_prefixes_are_cached(
    worker: StartWorker, tokenizer: Tokenizer, keys: Path
) -> None:
    """Its router sent requests anywhere: the worker's engine had told the server before."""
    one, prompt = worker(), "x" * 70
    config = ServerConfig(replica=[one.url], replica_key_file=str(keys), router="score")

    def cached(server: RunningServer, tokens: list[int]) -> int:
        (replica,) = server.fleet.replicas
        return replica.view.cached(Routable("", tokens, 1))

    with running(tokenizer, EngineConfig(model="echo"), config) as first:
        tokens = first.post("/tokenize", prompt=prompt).json()["tokens"]
        first.post(COMPLETIONS, prompt=prompt, max_tokens=1)
        eventually(lambda: cached(first, tokens) == 64)
    with running(tokenizer, EngineConfig(model="echo"), config) as second:
        eventually(lambda: cached(second, tokens) == 64)


@pytest.mark.slow
def test_a_worker_outlives_a_server_that_is_killed(worker: StartWorker, connect: Connect, keys: Path) -> None:
    """The engine stays, the server's requests end, and what it had changed is taken back."""
    one = worker()
    command = [sys.executable, "-c", SERVER, one.url, str(keys)]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as server:
        assert server.stdout is not None and server.stdout.readline() == b"token\n"
        engine = one.engine
        server.kill()
    one.says("the server is gone")
    second = connect(one)
    assert one.engine == engine
    assert text(events(second, COMPLETIONS, **BODY)) == EXPECTED
    assert second.http.get("/admin/scheduler").json()["scheduler"] == "fcfs"
    assert second.http.get("/admin/prefixes").json()["prefixes"] == []
    eventually(lambda: second.work() == 0)
