"""Measures what watching costs: CPU time a token of a server and its engine, with readers of /admin/live.

Turns of --requests streams at once, the same in each: one while nobody watches and one while readers do, in
turn the first. CPU time is that of the server's process and of the engine's, without the clients and the
readers. The interval is of the mean of the differences of neighbouring turns, by resampling them. Before
all of these, --fresh turns are taken when nobody has watched yet: what they cost beside those that come
after says what is left when readers have gone. ``OMP_NUM_THREADS=1`` takes away that an engine's threads
wait actively for each other.

The figure that counts is of ``OMP_NUM_THREADS=1 python bench/requests/watching.py``, with nothing else on
the machine: eight minutes. Turns differ by some percent, so with ``--turns 6 --fresh 2 --tokens 64``, which
takes half a minute, the interval is several percent wide.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

import click
import psutil

sys.path.insert(0, str(Path(__file__).parents[1]))  # bench's own modules

from peers.server import Server, free_port
from streaming import Reader

RESAMPLES = 10_000
SETTLE = 0.3
"""Seconds after readers came or left."""

READERS = """
import socket, sys, threading
def read():
    with socket.create_connection(("127.0.0.1", int(sys.argv[1]))) as connection:
        connection.sendall(b"GET /admin/live HTTP/1.1\\r\\nHost: localhost\\r\\n\\r\\n")
        while data := connection.recv(1 << 20):
            counts.append(len(data))
counts = []
threads = [threading.Thread(target=read, daemon=True) for _ in range(int(sys.argv[2]))]
for thread in threads:
    thread.start()
sys.stdin.readline()
print(sum(counts), flush=True)
"""
"""A program that reads the feed until it is told to stop, and says how many bytes came."""


@contextmanager
def reading(port: int, readers: int, told: list[int]) -> Iterator[None]:
    """Watches meanwhile, and adds to `told` how many bytes each second had.

    Without readers there is the same process and the same rest, so that turns differ in nothing else.
    """
    command = [sys.executable, "-c", READERS, str(port), str(readers)]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    time.sleep(SETTLE)
    began = time.monotonic()
    try:
        yield
    finally:
        seconds = time.monotonic() - began + SETTLE
        out, _ = process.communicate("\n")
        if readers:
            told.append(round(int(out) / seconds))
        time.sleep(SETTLE)


class Cost(NamedTuple):
    """CPU microseconds a token."""

    server: float
    engine: float

    @property
    def whole(self) -> float:
        return self.server + self.engine


class Load:
    """Streams that are asked for at once, the same ones each time."""

    def __init__(self, server: Server, port: int, requests: int, prompt: int, tokens: int) -> None:
        self._server, self._port, self._tokens = server, port, requests * tokens
        rng = random.Random(0)
        self._requests = [
            self._request([rng.randrange(5, 900) for _ in range(prompt)], tokens) for _ in range(requests)
        ]

    def _request(self, prompt: list[int], tokens: int) -> bytes:
        content = {
            "model": self._server.model,
            "prompt": prompt,
            "stream": True,
            "max_tokens": tokens,
            "ignore_eos": True,
            "temperature": 0,
        }
        body = json.dumps(content).encode()
        head = "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        return f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body

    def turn(self) -> Cost:
        before = self._cpu_seconds()
        asyncio.run(self._play())
        taken = (now - then for now, then in zip(self._cpu_seconds(), before, strict=True))
        return Cost(*(1e6 * seconds / self._tokens for seconds in taken))

    async def _play(self) -> None:
        loop = asyncio.get_running_loop()
        clients = [
            await loop.create_connection(lambda request=request: Reader(request), "127.0.0.1", self._port)  # type: ignore[misc]
            for request in self._requests
        ]
        await asyncio.gather(*(reader.ended.wait() for _, reader in clients))
        for transport, _ in clients:
            transport.close()

    def _cpu_seconds(self) -> tuple[float, float]:
        engines = psutil.Process(self._server.pid).children(recursive=True)
        return _taken(self._server.pid), sum(_taken(engine.pid) for engine in engines)


def _taken(process: int) -> float:
    """CPU seconds by Linux's clock of a process; `psutil` has hundredths, which are a percent of a turn."""
    return time.clock_gettime(~process << 3 | 2)


def rise(without: list[float], watched: list[float]) -> tuple[float, float, float]:
    """By what share watched turns cost more than those before them: the mean, and its 95% interval."""
    rng = random.Random(0)
    base = statistics.fmean(without)
    changes = [(b - a) / base for a, b in zip(without, watched, strict=True)]
    means = sorted(statistics.fmean(rng.choices(changes, k=len(changes))) for _ in range(RESAMPLES))
    return statistics.fmean(changes), means[RESAMPLES // 40], means[-RESAMPLES // 40]


def apart(before: list[float], after: list[float]) -> tuple[float, float, float]:
    """By what share turns cost more than others at another time: the mean, and its 95% interval."""
    rng, base = random.Random(0), statistics.fmean(before)

    def mean(of: list[float]) -> float:
        return statistics.fmean(rng.choices(of, k=len(of)))

    means = sorted((mean(after) - mean(before)) / base for _ in range(RESAMPLES))
    return statistics.fmean(after) / base - 1, means[RESAMPLES // 40], means[-RESAMPLES // 40]


@click.command(help=__doc__)
@click.option("--model", default="turnout-tiny", show_default=True, help="A folder, or an embedded model.")
@click.option("--requests", default=32, show_default=True, help="At once.")
@click.option("--prompt", default=64, show_default=True, help="Tokens of each prompt.")
@click.option("--tokens", default=128, show_default=True, help="To generate for each.")
@click.option("--readers", default=4, show_default=True)
@click.option("--turns", default=90, show_default=True, help="With readers, and as many without.")
@click.option("--fresh", default=10, show_default=True, help="Turns before anybody has watched.")
@click.argument("flags", nargs=-1, type=click.UNPROCESSED)
def main(
    model: str,
    requests: int,
    prompt: int,
    tokens: int,
    readers: int,
    turns: int,
    fresh: int,
    flags: tuple[str, ...],
) -> None:
    """Print the figures. FLAGS go to `turnout serve`."""
    with TemporaryDirectory() as folder, ExitStack() as stack:
        command = [sys.executable, "-m", "turnout", "serve", model, "--port", str(port := free_port())]
        command += ["--max-num-seqs", str(requests), *flags]
        variables = {name: os.environ[name] for name in ("PYTHONPATH",) if name in os.environ}
        server = Server("turnout", command, variables, Path(folder) / "server.log", port)
        stack.callback(server.stop)
        load = Load(server, port, requests, prompt, tokens)
        load.turn()
        before = list[Cost]()
        for _ in range(fresh):
            with reading(port, 0, []):
                before.append(load.turn())
        without, watched, told = list[Cost](), list[Cost](), list[int]()
        for turn in range(turns):
            for watches in (True, False) if turn % 2 else (False, True):
                with reading(port, readers if watches else 0, told):
                    (watched if watches else without).append(load.turn())
    click.echo(f"{requests} streams of {tokens} tokens, {turns} turns; CPU microseconds a token, medians")
    click.echo(f"{'':<16}{'server':>10}{'engine':>10}{'both':>10}")
    for name, found in (("never watched", before), ("not watched", without), (f"{readers} readers", watched)):
        parts = zip(*((turn.server, turn.engine, turn.whole) for turn in found), strict=True)
        click.echo(f"{name:<16}" + "".join(f"{statistics.median(part):>10,.1f}" for part in parts))
    change, low, high = rise(_whole(without), _whole(watched))
    click.echo(f"{readers} readers against not watched: {change:+.2%} ({low:+.2%} to {high:+.2%})")
    change, low, high = apart(_whole(before), _whole(without))
    click.echo(f"not watched against never watched: {change:+.2%} ({low:+.2%} to {high:+.2%})")
    click.echo(f"the readers got {statistics.median(told) / 1000:,.0f} kB/s")


def _whole(costs: list[Cost]) -> list[float]:
    return [cost.whole for cost in costs]


if __name__ == "__main__":
    main()
