"""Measures what a streamed token costs the server's process: clients read, and the engine computes nothing.

Each of --requests clients streams one answer; the engine gives every request a token at once, --rate times a
second, as a batch on a GPU does. CPU time is the server process's alone, between the first event of the last
client and the end. Events are counted, mostly of a token each: part of a character waits for its rest.

With --api-workers, times are of all workers together, and of the main process beside them. The busiest one is
full first: a second by its time for an event is what the server can do.
"""

from __future__ import annotations

import asyncio
import json
import os
import resource
import statistics
import sys
import time
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import click
import psutil
from engines.paced import PACE
from peers.server import Server, free_port

SERVER = """
import sys
from turnout.config import EngineConfig, ServerConfig
from turnout.server.serve import serve
serve(
    EngineConfig(model=sys.argv[1], max_num_seqs=int(sys.argv[2])),
    ServerConfig(port=int(sys.argv[3]), api_workers=int(sys.argv[4])),
    factory="engines.paced:build",
)
"""
BODIES: dict[str, dict[str, object]] = {
    "/v1/completions": {"prompt": "def fibonacci(n):\n    if n < 2: return n\n"},
    "/v1/chat/completions": {"messages": [{"role": "user", "content": "Who are you, and who is 你?"}]},
}


@dataclass(frozen=True)
class StreamingTurn:
    events: int
    seconds: float
    cpu: float
    """Seconds of the processes that serve HTTP."""
    main: float
    """Seconds of the process of the fleet, if that is another."""
    largest: float
    """Part of the events that the busiest of them had, by its time."""


class Reader(asyncio.Protocol):
    """Counts events, and hardly looks at them: clients must not be what is measured."""

    def __init__(self, request: bytes) -> None:
        self._request = request
        self.events = 0
        self.begun, self.ended = asyncio.Event(), asyncio.Event()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        transport.write(self._request)

    def data_received(self, data: bytes) -> None:
        self.events += data.count(b"data: ")
        self.begun.set()
        if b"data: [DONE]" in data:
            self.ended.set()


async def take_turn(
    port: int, path: str, model: str, requests: int, tokens: int, main: int, fronts: list[int]
) -> StreamingTurn:
    """All clients at once."""
    content = {"model": model, "stream": True, "max_tokens": tokens, "ignore_eos": True, **BODIES[path]}
    body = json.dumps(content).encode()
    head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    request = f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body
    loop = asyncio.get_running_loop()
    clients = [
        await loop.create_connection(lambda: Reader(request), "127.0.0.1", port) for _ in range(requests)
    ]
    readers = [reader for _, reader in clients]
    await asyncio.gather(*(reader.begun.wait() for reader in readers))
    before = {pid: _cpu_seconds(pid) for pid in (main, *fronts)}
    seen, started = sum(reader.events for reader in readers), time.perf_counter()
    await asyncio.gather(*(reader.ended.wait() for reader in readers))
    seconds = time.perf_counter() - started
    took = {pid: _cpu_seconds(pid) - cpu for pid, cpu in before.items()}
    for transport, _ in clients:
        transport.close()
    events = sum(reader.events for reader in readers) - seen
    cpu = sum(took[pid] for pid in fronts)
    largest = max(took[pid] for pid in fronts) / cpu
    return StreamingTurn(events, seconds, cpu, 0.0 if main in fronts else took[main], largest)


def _fronts(main: int) -> list[int]:
    """The processes that serve HTTP."""
    children = psutil.Process(main).children()
    return [child.pid for child in children if "turnout.server.front" in child.cmdline()] or [main]


def _cpu_seconds(pid: int) -> float:
    """CPU seconds of a process so far."""
    times = psutil.Process(pid).cpu_times()
    return times.user + times.system


@click.command(help=__doc__)
@click.option("--model", default="turnout-tiny", show_default=True, help="Whose tokenizer.")
@click.option("--requests", default=256, show_default=True, help="At once.")
@click.option("--tokens", default=200, show_default=True, help="Of each.")
@click.option("--rate", default=20.0, show_default=True, help="Tokens of each a second.")
@click.option("--turns", default=3, show_default=True)
@click.option("--api-workers", default=1, show_default=True, help="Of the server.")
def main(model: str, requests: int, tokens: int, rate: float, turns: int, api_workers: int) -> None:
    """Print a table."""
    resource.setrlimit(resource.RLIMIT_NOFILE, (4096, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
    click.echo(f"{requests} streams of {tokens} tokens, {rate:g} a second each; medians of {turns}")
    click.echo(
        f"{'':<24}{'CPU an event':>14}{'main process':>14}{'busiest':>9}{'events/s':>12}{'of a core':>12}"
    )
    with TemporaryDirectory() as folder, ExitStack() as stack:
        command = [sys.executable, "-c", SERVER, model, str(requests), str(port := free_port())]
        command.append(str(api_workers))
        folders = [str(Path(__file__).parent), *filter(None, [os.environ.get("PYTHONPATH")])]
        variables = {PACE: str(1 / rate), "PYTHONPATH": os.pathsep.join(folders)}
        server = Server("turnout", command, variables, Path(folder) / "server.log", port)
        stack.callback(server.stop)
        fronts = _fronts(server.pid)
        for path in BODIES:
            found = [
                asyncio.run(take_turn(port, path, model, requests, tokens, server.pid, fronts))
                for _ in range(turns + 1)
            ][1:]
            each = statistics.median(turn.cpu / turn.events for turn in found)
            main_each = statistics.median(turn.main / turn.events for turn in found)
            busiest = statistics.median(turn.largest for turn in found)
            per_second = statistics.median(turn.events / turn.seconds for turn in found)
            core = statistics.median(turn.cpu / turn.seconds for turn in found)
            times = f"{1e6 * each:>11.1f} us{1e6 * main_each:>11.1f} us{busiest:>9.0%}"
            click.echo(f"{path:<24}{times}{per_second:>12,.0f}{core:>12.0%}")


if __name__ == "__main__":
    main()
