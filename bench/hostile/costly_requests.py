"""What other clients notice while some send the costliest requests that the server accepts or refuses.

    python bench/hostile/costly_requests.py                   # all attacks, 10 seconds each
    python bench/hostile/costly_requests.py --seconds 30 --attack schema

Two clients stream answers from a served turnout-tiny, first alone, then beside four attackers. A line says,
for each attack, what the attackers got, the slowest of 99 in 100 ``/health`` requests, by how much the 99th
percentile of the time between two tokens grew, and the most memory that the server's process took. An attack
that generates text takes its share of the engine, so its gap grows as beside any four other clients.
"""

from __future__ import annotations

import asyncio
import statistics
import sys
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import aiohttp
import click
import psutil

SERVE = ["-m", "turnout", "serve", "turnout-tiny", "--port", "0"]
STREAMS, ATTACKERS = 2, 4
COMPLETIONS, CHAT = "/v1/completions", "/v1/chat/completions"
Request = tuple[str, Any]
"""A path, and a body as JSON."""


def _completion(**fields: Any) -> Request:
    return COMPLETIONS, {"prompt": "def f(x):", "max_tokens": 4, **fields}


def _schema(divisor: int) -> Request:
    """One that takes long to compile, and is in no cache."""
    properties = {f"p{time.monotonic_ns()}": {"type": "integer", "multipleOf": divisor}}
    return _completion(guided_json={"type": "object", "properties": properties})


USER = [{"role": "user", "content": "a"}]
ATTACKS: dict[str, Callable[[], Request]] = {
    "none": lambda: _completion(max_tokens=1),
    "a text of 4 MB": lambda: _completion(prompt="word, " * 700_000),
    "2,000 tokens and their logprobs": lambda: _completion(prompt=[5] * 2000, prompt_logprobs=20),
    "128 choices with logprobs": lambda: _completion(n=128, logprobs=20, max_tokens=30),
    "500 prompts": lambda: _completion(prompt=["a"] * 500),
    "32 long stop strings": lambda: _completion(stop=["a" * 4000] * 32, max_tokens=200),
    "4,000 bad words": lambda: _completion(bad_words=[f"w{i}" for i in range(4000)], max_tokens=100),
    "200,000 biases": lambda: _completion(logit_bias={str(i): 1 for i in range(200_000)}),
    "a schema of many states": lambda: _schema(999_983),
    "a schema of some states": lambda: _schema(29_989),
    "a regular expression": lambda: _completion(guided_regex=f"(a|b|ab){{{time.monotonic_ns() % 999}}}"),
    "beams": lambda: _completion(use_beam_search=True, n=8, beam_width=64, max_tokens=30),
    "16,000 messages": lambda: (CHAT, {"messages": USER * 16_000, "max_tokens": 1}),
    "1 MB to tokenize": lambda: ("/tokenize", {"prompt": "word, " * 170_000, "return_token_strs": True}),
    "260,000 tokens to text": lambda: ("/detokenize", {"tokens": [5] * 260_000}),
    "a million token ids": lambda: _completion(prompt=[12345] * 1_000_000),
    "2,048 prompts": lambda: _completion(prompt=["a"] * 2048),
    "a map of the pool": lambda: ("/admin/kv?map=true", None),
    "policies": lambda: ("/admin/scheduler", {"name": "mlfq"}),
    "metrics": lambda: ("/metrics", None),
}


@dataclass
class Noticed:
    """What is measured while something happens."""

    gaps: list[float] = field(default_factory=list)
    health: list[float] = field(default_factory=list)
    memory: int = 0
    answers: Counter[int] = field(default_factory=Counter)


@click.command()
@click.option("--seconds", default=10.0, show_default=True, help="Length of an attack.")
@click.option("--attack", "wanted", default="", help="Only attacks whose name has this text.")
def main(seconds: float, wanted: str) -> None:
    """Measure what costly requests do to other clients."""
    asyncio.run(_measure(seconds, [name for name in ATTACKS if wanted in name]))


async def _measure(seconds: float, attacks: list[str]) -> None:
    command = [*SERVE, "--kv-memory", "256MiB", "--log-level", "error"]
    pipe = asyncio.subprocess.PIPE
    server = await asyncio.create_subprocess_exec(sys.executable, *command, stdout=pipe)
    assert server.stdout is not None
    try:
        async for line in server.stdout:
            if b"Turnout serving" in line:
                url = line.decode().split()[-1]
                break
        process = psutil.Process(server.pid)
        print(
            f"{'':>32} {'/health p99':>12} {'max':>9} {'gap p99':>12} {'grew by':>9} {'memory':>8}  answers"
        )
        for name in attacks:
            alone = await _noticed(url, process, seconds / 2)
            with ProcessPoolExecutor(1) as pool:  # attackers that compute do not hold up the measurement
                attacking = pool.submit(_attacked, url, name, seconds)
                beside = await _noticed(url, process, seconds)
                beside.answers = await asyncio.wrap_future(attacking)
            print(f"{name:>32} {_line(alone, beside)}", flush=True)
    finally:
        server.kill()
        await server.wait()


def _line(alone: Noticed, beside: Noticed) -> str:
    gap = _p99(beside.gaps)
    answers = ", ".join(f"{count} {status}" for status, count in beside.answers.most_common())
    return (
        f"{1e3 * _p99(beside.health):9.0f} ms {1e3 * max(beside.health):6.0f} ms {1e3 * gap:9.0f} ms "
        f"{1e3 * (gap - _p99(alone.gaps)):6.0f} ms {beside.memory / 1e6:5.0f} MB  {answers}"
    )


def _p99(times: list[float]) -> float:
    return statistics.quantiles(times, n=100, method="inclusive")[-1] if len(times) > 1 else float("nan")


async def _noticed(url: str, process: psutil.Process, seconds: float) -> Noticed:
    noticed, end = Noticed(), time.monotonic() + seconds
    async with aiohttp.ClientSession(url) as client, asyncio.TaskGroup() as tasks:
        tasks.create_task(_ask_health(client, process, noticed, end))
        for _ in range(STREAMS):
            tasks.create_task(_read_streams(client, noticed, end))
    return noticed


async def _read_streams(client: aiohttp.ClientSession, noticed: Noticed, end: float) -> None:
    body = {"prompt": "import os\n", "max_tokens": 400, "stream": True, "ignore_eos": True}
    while time.monotonic() < end:
        async with client.post(COMPLETIONS, json=body) as response:
            last = None
            async for line in response.content:
                if line.startswith(b"data: {"):
                    now = time.monotonic()
                    if last is not None:
                        noticed.gaps.append(now - last)
                    last = now
                if time.monotonic() > end:
                    break


async def _ask_health(
    client: aiohttp.ClientSession, process: psutil.Process, noticed: Noticed, end: float
) -> None:
    while time.monotonic() < end:
        begun = time.monotonic()
        async with client.get("/health") as response:
            await response.read()
        noticed.health.append(time.monotonic() - begun)
        noticed.memory = max(noticed.memory, process.memory_info().rss)
        await asyncio.sleep(0.02)


def _attacked(url: str, name: str, seconds: float) -> Counter[int]:
    """The statuses that attackers got, in a process of their own."""
    return asyncio.run(_attack(url, ATTACKS[name], time.monotonic() + seconds))


async def _attack(url: str, make: Callable[[], Request], end: float) -> Counter[int]:
    answers: Counter[int] = Counter()

    async def ask() -> None:
        while time.monotonic() < end:
            path, body = make()
            async with client.request("GET" if body is None else "POST", path, json=body) as response:
                await response.read()
                answers[response.status] += 1

    async with aiohttp.ClientSession(url) as client:
        await asyncio.gather(*(ask() for _ in range(ATTACKERS)))
    return answers


if __name__ == "__main__":
    main()
