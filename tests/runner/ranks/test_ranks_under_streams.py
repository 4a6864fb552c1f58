"""Whatever becomes of a rank under load, clients get the tokens that they would have got."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import httpx
import pytest
from family_checkpoints import write_checkpoint

from turnout.models.hub.resolve import resolve_model
from turnout.runner.ranks.silence import TIMING
from turnout.scripts.make_model import copy_tokenizer
from turnout.text.tokenizer import load_tokenizer

STREAMS = 32
pytestmark = pytest.mark.slow


@contextmanager
def serving(log: Path, *options: str) -> Iterator[tuple[int, str]]:
    """``turnout serve`` on a port of its own: its pid, and its address."""
    command = [sys.executable, "-m", "turnout", "serve", *options, "--port", "0", "--kv-memory", "128MiB"]
    with log.open("w") as out:
        process = subprocess.Popen(command, stdout=out, stderr=out)
    try:
        deadline = time.monotonic() + 90
        while "Turnout serving" not in (told := log.read_text()):
            assert process.poll() is None, told
            assert time.monotonic() < deadline, told
            time.sleep(0.1)
        yield process.pid, told.split("Turnout serving", 1)[1].split()[2]
    finally:
        process.terminate()
        process.wait(30)


@pytest.fixture(
    scope="module",
    params=[("-tp", "2"), ("-pp", "2"), ("-tp", "2", "-pp", "2"), ("-tp", "2", "-ep")],
    ids="".join,
)
def server(tmp_path_factory, request) -> Iterator[tuple[int, str]]:
    """With several ranks."""
    model = "turnout-tiny"
    if "-ep" in request.param:
        model = str(mixture(tmp_path_factory.mktemp("mixture")))
    with serving(tmp_path_factory.mktemp("server") / "log", model, *request.param) as served:
        yield served


def mixture(folder: Path) -> Path:
    """A random mixture of experts with the small model's tokenizer."""
    copy_tokenizer(resolve_model("turnout-tiny"), folder)
    write_checkpoint("qwen3-moe", folder, vocab_size=load_tokenizer(folder).vocab_size)
    return folder


def children(parent: int, module: str) -> list[int]:
    """Processes that run `module`, of `parent` or of its children."""
    found = []
    for pid in Path(f"/proc/{parent}/task").glob("*/children"):
        with suppress(OSError):
            for child in map(int, pid.read_text().split()):
                with suppress(OSError):
                    if module in Path(f"/proc/{child}/cmdline").read_text():
                        found.append(child)
                found += children(child, module)
    return found


async def stream(client: httpx.AsyncClient, number: int) -> tuple[str, str | None]:
    body = {"prompt": f"Item {number}: the", "max_tokens": 120, "ignore_eos": True, "stream": True}
    text, reason = "", None
    asked = client.stream("POST", "/v1/completions", json={**body, "temperature": 0.9, "seed": number})
    async with asked as response:
        async for line in response.aiter_lines():
            if line.startswith("data: {"):
                (choice,) = json.loads(line[6:])["choices"]
                text, reason = text + choice["text"], choice["finish_reason"] or reason
    return text, reason


async def streams(url: str, after: float = 0, pid: int = 0, number: int = 0) -> list[tuple[str, str | None]]:
    """All streams at once; after so many seconds, the process is sent the signal `number`."""

    async def disturb() -> None:
        await asyncio.sleep(after)
        if pid:
            os.kill(pid, number)

    async with httpx.AsyncClient(base_url=url, timeout=120) as client:
        found, _ = await asyncio.gather(
            asyncio.gather(*(stream(client, each) for each in range(STREAMS))), disturb()
        )
    return found


@pytest.mark.parametrize(
    ("module", "number"),
    [
        ("turnout.runner.follower.main", signal.SIGKILL),
        ("turnout.server.engine.main", signal.SIGKILL),
        ("turnout.runner.follower.main", signal.SIGSTOP),
    ],
)
def test_no_stream_is_lost_or_changed(module, number, server):
    pid, url = server
    undisturbed = asyncio.run(streams(url))
    assert all(reason == "length" for _, reason in undisturbed)
    *_, victim = children(pid, module)
    assert asyncio.run(streams(url, 0.7, victim, number)) == undisturbed
    assert victim not in children(pid, module), "another engine has taken over"


def test_rank_0_that_stops_for_a_while_goes_on(server):
    """Longer than a follower may be silent: no rank takes another for dead because it was stopped itself."""
    pid, url = server
    undisturbed = asyncio.run(streams(url))
    (engine,) = children(pid, "turnout.server.engine.main")

    async def stopped() -> list[tuple[str, str | None]]:
        async def wake() -> None:
            await asyncio.sleep(0.7 + 1.2 * TIMING.silent)
            os.kill(engine, signal.SIGCONT)

        found, _ = await asyncio.gather(streams(url, 0.7, engine, signal.SIGSTOP), wake())
        return found

    assert asyncio.run(stopped()) == undisturbed
    assert engine in children(pid, "turnout.server.engine.main"), "no other one has taken over"


def test_replicas_of_ranks_give_the_tokens_of_one_engine(tmp_path):
    """Also when one of the replicas loses a rank."""
    with serving(tmp_path / "alone", "turnout-tiny") as (_, url):
        expected = asyncio.run(streams(url))
    with serving(tmp_path / "replicas", "turnout-tiny", "--replicas", "2", "-tp", "2") as (pid, url):
        assert httpx.get(f"{url}/admin/replicas").json()["replicas"][1]["ranks"] == 2
        assert len(children(pid, "turnout.server.engine.main")) == 2
        followers = children(pid, "turnout.runner.follower.main")
        assert len(followers) == 2
        assert asyncio.run(streams(url)) == expected
        assert asyncio.run(streams(url, 0.7, followers[0], signal.SIGKILL)) == expected
