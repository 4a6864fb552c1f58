"""Measures how long streams pause when their engine is killed while others live, against their replay.

Each of --streams clients streams one answer of a server with --replicas engines of the model. One engine is
killed with SIGKILL. The pause of a stream that moved is the time between its last token before and its first
after. Replay is measured afterwards: prompts and tokens so far of all that moved are sent at once for one
token each, and no cached prefix is found. Once to all engines, which are idle then; and once to one fewer,
which stream as many other answers as they did when the engine died.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import signal
import statistics
import subprocess
import sys
import time
from dataclasses import dataclass, field
from typing import Any

import aiohttp
import click
import psutil

ENGINE = "turnout.server.engine.main"


@dataclass
class Stream:
    """An answer: its tokens, and when they came."""

    prompt: list[int]
    tokens: list[int] = field(default_factory=list)
    times: list[float] = field(default_factory=list)
    moves: int = 0

    def pause(self, killed: float) -> tuple[float, float]:
        """The longest gap that begins before the kill or within a second of it, and when it begins."""
        gaps = [(b - a, a) for a, b in zip(self.times, self.times[1:], strict=False) if b > killed]
        return max((gap, begun) for gap, begun in gaps if begun < killed + 1.0)

    def before(self, killed: float) -> list[int]:
        """What another engine has to compute again."""
        return self.prompt + self.tokens[: sum(at <= killed for at in self.times)]


@click.command()
@click.option("--model", default="turnout-tiny", show_default=True)
@click.option("--replicas", default=4, show_default=True)
@click.option("--streams", default=64, show_default=True)
@click.option("--prompt-tokens", default=200, show_default=True)
@click.option("--tokens", default=300, show_default=True)
@click.option("--kills", default=5, show_default=True, help="Kills, each after all engines are ready again.")
@click.option("--flag", "flags", multiple=True, help="Another flag of turnout serve.")
def main(
    model: str,
    replicas: int,
    streams: int,
    prompt_tokens: int,
    tokens: int,
    kills: int,
    flags: tuple[str, ...],
) -> None:
    command = [sys.executable, "-m", "turnout", "serve", model, "--port", "0"]
    command += ["--replicas", str(replicas), *flags]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        try:
            assert server.stdout is not None
            url = next(line.split()[-1] for line in server.stdout if line.startswith("Turnout serving"))
            for kill in range(kills):
                asyncio.run(_measure(url, server.pid, replicas, streams, prompt_tokens, tokens, kill))
        finally:
            server.terminate()


async def _measure(
    url: str, pid: int, replicas: int, count: int, prompt: int, tokens: int, number: int
) -> None:
    drawn = random.Random(number)
    connector = aiohttp.TCPConnector(limit=0)
    async with aiohttp.ClientSession(url, connector=connector) as client:
        while not await _all_serve(client, replicas):
            await asyncio.sleep(0.2)
        streams = [Stream([drawn.randrange(10, 250) for _ in range(prompt)]) for _ in range(count)]
        reading = [asyncio.create_task(_read(client, stream, tokens)) for stream in streams]
        while min(len(stream.times) for stream in streams) < tokens // 4:
            await asyncio.sleep(0.02)
        children = psutil.Process(pid).children()
        engine = drawn.choice([child for child in children if ENGINE in child.cmdline()])
        killed = time.monotonic()
        os.kill(engine.pid, signal.SIGKILL)
        await asyncio.gather(*reading)
        moved = [stream for stream in streams if stream.moves]
        pauses = [stream.pause(killed) for stream in moved]
        stayed = [stream.pause(killed) for stream in streams if not stream.moves]
        while not await _all_serve(client, replicas):
            await asyncio.sleep(0.2)
        again = [stream.before(killed) for stream in moved]
        replays = await asyncio.gather(*(_replay(client, prompt, f"idle {number}") for prompt in again))
        others = [Stream([drawn.randrange(10, 250) for _ in range(prompt)]) for _ in stayed]
        await _change(client, "drain")
        reading = [asyncio.create_task(_read(client, stream, tokens)) for stream in others]
        while min(len(stream.times) for stream in others) < tokens // 4:
            await asyncio.sleep(0.02)
        busy = await asyncio.gather(*(_replay(client, prompt, f"busy {number}") for prompt in again))
        await asyncio.gather(*reading)
        await _change(client, "restart")
    _tell(number, killed, pauses, stayed, replays, busy)


def _tell(
    number: int,
    killed: float,
    pauses: list[tuple[float, float]],
    stayed: list[tuple[float, float]],
    replays: list[float],
    busy: list[float],
) -> None:
    longest, begun = max(pauses)
    print(
        f"kill {number}: {len(pauses)} streams moved; "
        f"pause: median {1e3 * statistics.median(gap for gap, _ in pauses):.0f} ms, "
        f"longest {1e3 * longest:.0f}, begun {1e3 * (begun - killed):+.0f} ms of the kill; "
        f"of those that stayed, longest {1e3 * max(stayed)[0]:.0f}; "
        f"replay: median {1e3 * statistics.median(replays):.0f}, longest {1e3 * max(replays):.0f}; "
        f"beside streams: median {1e3 * statistics.median(busy):.0f}, longest {1e3 * max(busy):.0f}; "
        f"the longest pause is {1e3 * (longest - max(replays)):+.0f} ms of the longest replay, "
        f"{1e3 * (longest - max(busy)):+.0f} beside streams",
        flush=True,
    )


async def _all_serve(client: aiohttp.ClientSession, count: int) -> bool:
    """One that is restarted is not listed between its two engines."""
    async with client.get("/admin/replicas") as response:
        listed = (await response.json())["replicas"]
    return [each["state"] for each in listed] == ["serving"] * count


async def _change(client: aiohttp.ClientSession, action: str) -> None:
    """Of the first replica."""
    async with client.post("/admin/replicas", json={"action": action, "replica": "0"}) as response:
        assert response.status == 200, await response.text()


async def _read(client: aiohttp.ClientSession, stream: Stream, tokens: int) -> None:
    body: dict[str, Any] = {
        **{"prompt": stream.prompt, "max_tokens": tokens, "temperature": 0, "ignore_eos": True},
        **{"stream": True, "return_token_ids": True, "timing": True},
    }
    async with client.post("/v1/completions", json=body) as response:
        async for line in response.content:
            if not line.startswith(b"data: {"):
                continue
            event = json.loads(line[6:])
            assert "error" not in event, event
            if event.get("timing"):
                stream.moves = len(event["timing"]["preempted_ms"])
            for choice in event["choices"]:
                ids = choice.get("token_ids") or []
                stream.tokens += ids
                stream.times += [time.monotonic()] * len(ids)


async def _replay(client: aiohttp.ClientSession, prompt: list[int], salt: str) -> float:
    begun = time.monotonic()
    body = {"prompt": prompt, "max_tokens": 1, "temperature": 0, "cache_salt": salt}
    async with client.post("/v1/completions", json=body) as response:
        assert response.status == 200, await response.text()
        await response.read()
    return time.monotonic() - begun


if __name__ == "__main__":
    main()
