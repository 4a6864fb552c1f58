"""Replicas are killed under many streams, each time when all are there again: none is lost or changed."""

from __future__ import annotations

import asyncio
import random
import time

import aiohttp
import psutil
import pytest
from load import REQUESTS, Load, answer_to
from tiny_server import TinyServer, serving
from torments import Victim

KILLS, REPLICAS = 20, 4
STREAMS = 256
READY_SECONDS = 120.0
"""How long replicas may take to be there again beside so many streams."""


@pytest.mark.slow
@pytest.mark.timeout(0)
def test_twenty_kills_lose_and_change_nothing() -> None:
    flags = ("--replicas", str(REPLICAS), "--spec-ngram")
    with serving(*flags, "--kv-memory", "64MiB", "--max-num-seqs", "32") as server:
        asyncio.run(kills(server, random.Random(7)))
        server.check()


async def kills(server: TinyServer, drawn: random.Random) -> None:
    connector = aiohttp.TCPConnector(limit=0)
    async with aiohttp.ClientSession(server.url, connector=connector) as client:
        load = Load(client, REQUESTS, [await answer_to(client, request) for request in REQUESTS])
        victim = Victim(server.process, server.port, client, drawn)
        async with asyncio.TaskGroup() as streams:
            for number in range(STREAMS):
                streams.create_task(load.run(number))
            for _ in range(KILLS):
                await all_serve(client)
                await asyncio.sleep(drawn.uniform(0.5, 3))
                engine = drawn.choice(victim.engines)
                engine.kill()
                await asyncio.to_thread(psutil.wait_procs, [engine], 10)
            await all_serve(client)
            load.over = True
        print(dict(load.ends))
        assert not load.wrong, "\n".join(load.wrong[:10])
        assert load.ends["right"] > STREAMS
        assert await restarts(client) == KILLS


async def all_serve(client: aiohttp.ClientSession) -> None:
    """Wait until all replicas serve."""
    end = time.monotonic() + READY_SECONDS
    while True:
        async with client.get("/admin/replicas") as response:
            listed = (await response.json())["replicas"]
        if [each["state"] for each in listed] == ["serving"] * REPLICAS:
            return
        assert time.monotonic() < end, listed
        await asyncio.sleep(0.1)


async def restarts(client: aiohttp.ClientSession) -> int:
    async with client.get("/admin/replicas") as response:
        return sum(each["restarts"] for each in (await response.json())["replicas"])
