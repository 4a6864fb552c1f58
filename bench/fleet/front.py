"""Measures what the fleet costs one replica, and a worker over TCP beside an engine of the server's own.

Both ways of the first part are the server's own code, in this process, without an engine: the client of one
engine is told tokens as its channel tells them, and streams are read, through the fleet and without it. What
a token and a request take more is set against W2 of the second part: 32 requests of 128 tokens in and 64 out
at once, tokens a second over HTTP, of a server with an engine of its own and one with a worker's, in turns.

PYTHONPATH=bench python bench/fleet/front.py
"""

from __future__ import annotations

import asyncio
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncGenerator, Callable
from contextlib import ExitStack
from pathlib import Path

import click
from peers.environments import OWN
from peers.server import Server, free_port

from turnout.core.errors import EngineGone
from turnout.core.interfaces.launcher import EngineOrder, LaunchedEngine, Launcher
from turnout.core.types.messages import Delta
from turnout.core.types.request import RequestSpec
from turnout.core.types.sampling_params import SamplingParams
from turnout.plugins.routers.least_loaded import LeastLoaded
from turnout.server.engine.client import ProcessClient
from turnout.server.engine.streams.request_stream import RequestStream
from turnout.server.fleet.fleet import Fleet

W2 = "burst:requests=32,prompt=128,output=64"
REQUESTS, TOKENS = 32, 64
HERE = Path(__file__).parents[3]

Submit = Callable[[RequestSpec], AsyncGenerator[Delta, None]]


class NoEngine(LaunchedEngine):
    """Says nothing, and never ends."""

    def configure(self, config: str) -> None:
        """There is nothing to build."""

    def kill(self) -> None:
        """There is nothing to end."""


class Nowhere(Launcher):
    """Starts nothing: this process tells the client what an engine would."""

    def launch(self, order: EngineOrder) -> NoEngine:
        return NoEngine()


def plain(client: ProcessClient) -> Submit:
    """As `Fleet.submit`, with all that a single engine needs and nothing else."""

    async def submit(request: RequestSpec) -> AsyncGenerator[Delta, None]:
        stream = RequestStream(request)
        client.check()
        client.attach(stream)
        try:
            while (delta := await stream.next()) is not None:
                yield delta
        finally:
            client.detach(stream)

    return submit


async def read(submit: Submit, client: ProcessClient, rounds: int, tokens: int) -> float:
    """Seconds of `rounds` of requests at once, of so many tokens each."""

    async def reading(number: int) -> None:
        params = SamplingParams(max_tokens=tokens)
        spec = RequestSpec(id=str(number), prompt=[1] * 128, params=params, seed=0, arrival=0.0)
        async for _ in submit(spec):
            pass

    began = time.process_time()
    for _ in range(rounds):
        readers = [asyncio.create_task(reading(number)) for number in range(REQUESTS)]
        await asyncio.sleep(0)
        for step in range(tokens):
            last = "length" if step == tokens - 1 else ""
            for number in range(REQUESTS):
                client._on_event(Delta(request_id=str(number), tokens=[7], finish_reason=last or None))
            await asyncio.sleep(0)
        await asyncio.gather(*readers)
    return time.process_time() - began


async def in_process(turns: int) -> tuple[float, float]:
    """Microseconds that the fleet takes more for a token, and for a request besides."""
    fleet = Fleet(lambda order: ProcessClient(launcher=Nowhere()), 1, LeastLoaded())
    (replica,) = fleet.replicas
    replica.started, client = True, replica.client
    client._most_requests = 10**6
    ways: dict[str, Submit] = {"fleet": fleet.submit, "plain": plain(client)}
    took: dict[tuple[str, int], list[float]] = {}
    for turn in range(turns + 1):
        for tokens, rounds in ((2, 60), (1000, 2)):
            for name, submit in ways.items():
                seconds = await read(submit, client, rounds, tokens)
                if turn:
                    took.setdefault((name, tokens), []).append(1e6 * seconds / rounds / REQUESTS)
    short, long = (
        statistics.median(a - b for a, b in zip(took["fleet", n], took["plain", n], strict=True))
        for n in (2, 1000)
    )
    token = (long - short) / 998
    return token, short - 2 * token


class Served:
    """A server, with an engine of its own or with a worker's."""

    def __init__(self, running: ExitStack, model: str, folder: Path, *, worker: bool) -> None:
        port = free_port()
        arguments = [model, "--port", str(port)]
        if worker:
            key = folder / "fleet.key"
            address = f"tcp://127.0.0.1:{free_port()}"
            command = [sys.executable, "-m", "turnout", "worker", model, "--listen", address]
            process = subprocess.Popen([*command, "--key-file", str(key)], stderr=subprocess.PIPE, text=True)
            running.callback(process.wait)
            running.callback(process.terminate)
            assert process.stderr is not None
            while not re.search("the engine is ready", line := process.stderr.readline()):
                if not line:
                    raise EngineGone("the worker has ended")
            arguments += ["--replica", address, "--replica-key-file", str(key)]
        name = "a worker's engine" if worker else "its own engine"
        command = [str(OWN), "-P", "-m", "turnout", "serve", *arguments]
        self.server = Server(name, command, {"PYTHONPATH": str(HERE)}, folder / f"{worker}.log", port)
        running.callback(self.server.stop)


@click.command(help=__doc__)
@click.option("--model", default="turnout-tiny", show_default=True)
@click.option("--repeats", default=5, show_default=True, help="Turns of each.")
def main(model: str, repeats: int) -> None:
    token, request = asyncio.run(in_process(repeats))
    with tempfile.TemporaryDirectory() as folder, ExitStack() as running:
        both = [Served(running, model, Path(folder), worker=worker).server for worker in (False, True)]
        rates: dict[str, list[float]] = {server.name: [] for server in both}
        for turn in range(repeats + 1):
            for server in both:
                rate = server.play(W2, turn).output_throughput
                if turn:
                    rates[server.name].append(rate)
    for name, reached in rates.items():
        middle = statistics.median(reached)
        print(f"W2 of {name}: {middle:,.1f} tokens/s ({min(reached):,.1f} to {max(reached):,.1f})")
    own = statistics.median(rates[both[0].name])
    share = (token + request / TOKENS) * own / 1e6
    print(f"the fleet: {token:.2f} us a token and {request:.1f} us a request more: {share:.2%} of W2")
    pairs = zip(*rates.values(), strict=True)
    print(f"the worker: {statistics.median(b / a for a, b in pairs):.3f} of W2")


if __name__ == "__main__":
    main()
