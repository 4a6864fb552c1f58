"""Measures what a streamed token costs the server's process: clients read, and the engine computes nothing.

Each of --requests clients streams one answer; the engine gives every request a token at once, --rate times a
second, as a batch on a GPU does. CPU time is the server process's alone, between the first event of the last
client and the end. Events are counted, mostly of a token each: part of a character waits for its rest.
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
    ServerConfig(port=int(sys.argv[3])),
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
    """Seconds of the server's process."""


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


async def take_turn(port: int, path: str, model: str, requests: int, tokens: int, pid: int) -> StreamingTurn:
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
    seen, cpu, started = sum(reader.events for reader in readers), _cpu_seconds(pid), time.perf_counter()
    await asyncio.gather(*(reader.ended.wait() for reader in readers))
    seconds, cpu = time.perf_counter() - started, _cpu_seconds(pid) - cpu
    for transport, _ in clients:
        transport.close()
    return StreamingTurn(sum(reader.events for reader in readers) - seen, seconds, cpu)


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
def main(model: str, requests: int, tokens: int, rate: float, turns: int) -> None:
    """Print a table."""
    resource.setrlimit(resource.RLIMIT_NOFILE, (4096, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
    click.echo(f"{requests} streams of {tokens} tokens, {rate:g} a second each; medians of {turns}")
    click.echo(f"{'':<24}{'CPU an event':>14}{'events/s':>12}{'of a core':>12}")
    with TemporaryDirectory() as folder, ExitStack() as stack:
        command = [sys.executable, "-c", SERVER, model, str(requests), str(port := free_port())]
        folders = [str(Path(__file__).parent), *filter(None, [os.environ.get("PYTHONPATH")])]
        variables = {PACE: str(1 / rate), "PYTHONPATH": os.pathsep.join(folders)}
        server = Server("turnout", command, variables, Path(folder) / "server.log", port)
        stack.callback(server.stop)
        for path in BODIES:
            found = [
                asyncio.run(take_turn(port, path, model, requests, tokens, server.pid))
                for _ in range(turns + 1)
            ][1:]
            each = statistics.median(turn.cpu / turn.events for turn in found)
            per_second = statistics.median(turn.events / turn.seconds for turn in found)
            core = statistics.median(turn.cpu / turn.seconds for turn in found)
            click.echo(f"{path:<24}{1e6 * each:>11.1f} us{per_second:>12,.0f}{core:>12.0%}")


if __name__ == "__main__":
    main()
