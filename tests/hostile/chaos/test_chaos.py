"""Requests of every kind while their engine is killed, stopped and starved, and while fuzzers send what they
like: none is lost, none is changed, and nothing is left of them.

``TURNOUT_CHAOS_MINUTES=60 pytest tests/hostile/chaos -m slow -s`` goes on for as long as wanted.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import aiohttp
import psutil
import pytest
from disk import SmallDisk
from load import CLIENTS, ONE_OF_A_KIND, PATIENCE, REQUESTS, Load, Request, answer_to
from tiny_server import TinyServer, serving
from torments import ALL, FEW, Torment, Victim

from turnout.text.processes.pool import MAX_IDLE

MINUTES = float(os.environ.get("TURNOUT_CHAOS_MINUTES", "5"))
RESTS = (1.0, 6.0)
"""Seconds between two torments."""
IN_A_ROW, ANSWERS = 3, 4
"""After so many torments, so many requests are answered before the next: on a busy machine, no engine would
live long enough otherwise."""
SETTLING = 120.0
"""Seconds after which nothing may be left of the requests."""
GROWTH = 150 * 2**20
"""Bytes that the server's process may have grown by: its buffers and threads at their busiest."""


FUZZERS = 2
FUZZER = Path(__file__).with_name("fuzzer.py")
FUZZER_PAUSE = 0.6
"""Most seconds between two requests of a fuzzer: each takes the processor time of several to be made up."""


@dataclass(frozen=True)
class Scene:
    """A server, and the disk that its files are on."""

    server: TinyServer
    disk: SmallDisk | None


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
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
    with SmallDisk.mounted(tmp_path_factory.mktemp("disk")) as disk:
        if disk is None:
            print("no disk can be mounted here, so none is filled")
        options = {} if disk is None else {"log": disk.log, "env": disk.environment()}
        with serving(*flags, **options) as server:
            yield Scene(server, disk)


@pytest.mark.slow
def test_nothing_is_lost_or_changed(scene: Scene) -> None:
    asyncio.run(chaos(scene, 4, FEW, random.Random(3), ONE_OF_A_KIND, fuzzers=0))


@pytest.mark.slow
@pytest.mark.timeout(0)
def test_nothing_is_lost_or_changed_for_long(scene: Scene) -> None:
    seed = random.SystemRandom().randrange(10**6)
    print(f"seed {seed}")
    asyncio.run(chaos(scene, 60 * MINUTES, ALL, random.Random(seed), REQUESTS, fuzzers=FUZZERS))


async def chaos(
    scene: Scene,
    seconds: float,
    torments: Sequence[Torment],
    drawn: random.Random,
    requests: list[Request],
    *,
    fuzzers: int,
) -> None:
    server = scene.server
    connector = aiohttp.TCPConnector(force_close=True, limit=0)
    async with aiohttp.ClientSession(server.url, connector=connector) as client:
        load = Load(client, requests, [await answer_to(client, request) for request in requests])
        await settled(server, client)
        before = Held.by(server.process)
        files = scene.disk.left() if scene.disk else []
        victim = Victim(server.process, server.port, client, drawn, scene.disk)
        with fuzzing(server.url, [drawn.randrange(10**9) for _ in range(fuzzers)]) as fuzzed:
            clients = [asyncio.create_task(load.run(drawn.randrange(10**9))) for _ in range(CLIENTS)]
            await tormented(server, victim, load, torments, time.monotonic() + seconds)
            load.over = True
            await asyncio.gather(*clients)
        await settled(server, client)
        print(dict(load.ends), dict(fuzzed.counts), before, Held.by(server.process))
        wrong = load.wrong + fuzzed.wrong
        assert not wrong, "\n".join(wrong[:10])
        assert load.ends["right"] >= max(ANSWERS, seconds / 5)
        again = await asyncio.gather(*(answer_to(client, request) for request in requests))
        assert again == load.answers
        await settled(server, client)
    assert_nothing_is_held(before, server.process)
    assert not scene.disk or scene.disk.left() == files
    server.check(engines_fail=True)  # a torment takes what an engine needs to start


@dataclass
class Fuzzed:
    """What the fuzzers have done."""

    counts: Counter[str]
    """By endpoint and status."""
    wrong: list[str]


@contextmanager
def fuzzing(url: str, seeds: Sequence[int]) -> Iterator[Fuzzed]:
    """Processes that send requests until the block is left; known then: what became of the requests."""
    found = Fuzzed(Counter(), [])
    paths = [str(FUZZER.parents[2] / "support"), str(FUZZER.parents[1] / "support")]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([os.environ.get("PYTHONPATH", ""), *paths])}
    processes = [
        subprocess.Popen(
            [sys.executable, str(FUZZER), url, str(seed), str(FUZZER_PAUSE), str(PATIENCE)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=environment,
        )
        for seed in seeds
    ]
    try:
        yield found
        for process in processes:
            said, _ = process.communicate(timeout=2 * PATIENCE)
            told = json.loads(said)
            found.counts.update(told["counts"])
            found.wrong += told["wrong"]
    finally:
        for process in processes:
            process.kill()


async def tormented(
    server: TinyServer, victim: Victim, load: Load, torments: Sequence[Torment], end: float
) -> None:
    """One torment after the other, all in turn and then any."""
    turn = answered = 0
    while time.monotonic() < end:
        if not turn % IN_A_ROW:
            answered = await _answered(server, load, answered + ANSWERS)
        torment = torments[turn] if turn < len(torments) else victim.drawn.choice(torments)
        turn += 1
        print(f"{time.strftime('%H:%M:%S')} {torment.__name__}", flush=True)
        try:
            await torment(victim)
        except (psutil.NoSuchProcess, aiohttp.ClientError, OSError) as error:
            print(f"  {error!r}", flush=True)
        await asyncio.sleep(victim.drawn.uniform(*RESTS))
        assert server.popen.poll() is None, f"the server ended\n{server.text()[-5000:]}"


async def _answered(server: TinyServer, load: Load, most: int) -> int:
    """How many requests have been answered, once they are `most` or more."""
    end = time.monotonic() + PATIENCE
    while load.ends["right"] < most:
        assert time.monotonic() < end, f"no answer in {PATIENCE:.0f} s\n{server.text()[-5000:]}"
        await asyncio.sleep(0.2)
    return load.ends["right"]


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
