"""Requests of every kind while their engine is killed, stopped and starved: none is lost, none is changed,
and nothing is left of them.

``TURNOUT_CHAOS_MINUTES=15 pytest tests/hostile/chaos -m slow -s`` goes on for as long as wanted.
"""

from __future__ import annotations

import asyncio
import os
import random
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import aiohttp
import psutil
import pytest
from load import CLIENTS, REQUESTS, Load, answer_to
from tiny_server import TinyServer, serving
from torments import ALL, FEW, Torment, Victim

from turnout.text.template_process import MAX_IDLE

MINUTES = float(os.environ.get("TURNOUT_CHAOS_MINUTES", "5"))
RESTS = (1.0, 6.0)
"""Seconds between two torments."""
SETTLING = 120.0
"""Seconds after which nothing may be left of the requests."""
GROWTH = 150 * 2**20
"""Bytes that the server's process may have grown by: its buffers and threads at their busiest."""


@pytest.fixture(scope="module")
def server() -> Iterator[TinyServer]:
    """Little memory, so that requests fight for it, and engines in any number."""
    flags = [
        "--kv-memory",
        "6MiB",
        "--max-model-len",
        "600",
        "--max-num-seqs",
        "12",
        "--spec-ngram",
        "--engine-restarts",
        "100000",
    ]
    with serving(*flags) as server:
        yield server


def test_nothing_is_lost_or_changed(server: TinyServer) -> None:
    asyncio.run(chaos(server, 15, FEW, random.Random(3)))


@pytest.mark.slow
@pytest.mark.timeout(0)
def test_nothing_is_lost_or_changed_for_long(server: TinyServer) -> None:
    seed = random.SystemRandom().randrange(10**6)
    print(f"seed {seed}")
    asyncio.run(chaos(server, 60 * MINUTES, ALL, random.Random(seed)))


async def chaos(
    server: TinyServer, seconds: float, torments: Sequence[Torment], drawn: random.Random
) -> None:
    connector = aiohttp.TCPConnector(force_close=True, limit=0)
    async with aiohttp.ClientSession(server.url, connector=connector) as client:
        load = Load(client, [await answer_to(client, request) for request in REQUESTS])
        await settled(server, client)
        before = Held.by(server.process)
        victim = Victim(server.process, server.port, client, drawn)
        clients = [asyncio.create_task(load.run(drawn.randrange(10**9))) for _ in range(CLIENTS)]
        await tormented(server, victim, torments, time.monotonic() + seconds)
        load.over = True
        await asyncio.gather(*clients)
        await settled(server, client)
        print(dict(load.ends), before, Held.by(server.process))
        assert not load.wrong, "\n".join(load.wrong[:10])
        assert load.ends["right"] > seconds / 5
        for number, request in enumerate(REQUESTS):
            assert await answer_to(client, request) == load.answers[number]
        await settled(server, client)
    assert_nothing_is_held(before, server.process)
    server.check()


async def tormented(server: TinyServer, victim: Victim, torments: Sequence[Torment], end: float) -> None:
    """One torment after the other, all in turn and then any."""
    turn = 0
    while time.monotonic() < end:
        torment = torments[turn] if turn < len(torments) else victim.drawn.choice(torments)
        turn += 1
        print(f"{time.strftime('%H:%M:%S')} {torment.__name__}", flush=True)
        try:
            await torment(victim)
        except (psutil.NoSuchProcess, aiohttp.ClientError, OSError) as error:
            print(f"  {error!r}", flush=True)
        await asyncio.sleep(victim.drawn.uniform(*RESTS))
        assert server.popen.poll() is None, f"the server ended\n{server.text()[-5000:]}"


async def settled(server: TinyServer, client: aiohttp.ClientSession) -> None:
    """Wait until the server is well, and has no request and no memory of one."""
    end, left = time.monotonic() + SETTLING, "nothing"
    while time.monotonic() < end:
        left = await _left(client)
        if not left:
            return
        await asyncio.sleep(0.2)
    raise AssertionError(f"after {SETTLING:.0f} s: {left}\n{server.text()[-3000:]}")


async def _left(client: aiohttp.ClientSession) -> str:
    async with client.get("/health") as response:
        if response.status != 200:
            return await response.text()
    async with client.get("/load") as response:
        if (load := await response.json())["server_load"]:
            return str(load)
    async with client.get("/admin/kv") as response:
        kv = await response.json()
        if response.status != 200 or kv["held"] or kv["shared"] or kv["pinned"] or kv["swapped"]:
            return str(kv)
    async with client.get("/admin/scheduler") as response:
        state = await response.json()
        return str(state) if response.status != 200 or state["running"] or state["waiting"] else ""


@dataclass(frozen=True)
class Held:
    """What a server's process holds."""

    descriptors: int
    threads: int
    memory: int
    children: int

    @classmethod
    def by(cls, process: psutil.Process) -> Held:
        with process.oneshot():
            memory = process.memory_info().rss
            return cls(process.num_fds(), process.num_threads(), memory, len(process.children()))


def assert_nothing_is_held(before: Held, process: psutil.Process) -> None:
    """More than before, but for threads and processes that wait for work, and memory for the next ones."""
    idle = MAX_IDLE - 1  # of the processes that render templates, one has been used
    end = time.monotonic() + 30
    while (after := Held.by(process)).descriptors > before.descriptors + idle and time.monotonic() < end:
        time.sleep(0.2)
    assert after.descriptors <= before.descriptors + idle, (before, after)
    assert before.children <= after.children <= before.children + idle, (before, after)
    assert after.threads <= before.threads + 40, (before, after)
    assert after.memory <= before.memory + GROWTH, (before, after)
