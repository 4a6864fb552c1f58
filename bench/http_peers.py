"""Measures serving over HTTP, and how soon a first token comes, on a CPU beside a peer's server.

\b
    W2  32 requests of 128 tokens in and 64 out at once: tokens a second over HTTP, beside the engine alone
    W3  32 at once, 16 to 512 in, 8 to 128 out: over HTTP, this is the capacity
    W5  Poisson arrivals of W3's requests at 70% of Turnout's capacity, the same for every server

Every server takes a turn before any takes a second one; each is a process of its own that stays, and
has nothing to do while another has its turn. In W2 each rests before its turn, since a machine that has
rested is faster, and turns go to and fro, so that the engine alone and Turnout's server follow one another,
either of them first, with the same prompts. The clients have the same cores as the engine, and so has the
process that speaks HTTP: what clients take of W2's time is told beside. `--http-cores 1` gives both a core of
their own, and engines the others. Memory that is touched for the first time is slow on virtual machines, and
so are first turns: `--warm` says how many are not counted.
"""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import click
from cpu_peers import REST, features, machine, ratio
from peers.cores import divided, move
from peers.options import options, publish
from peers.peers import SERVERS, Setting, turnout, turnout_server
from peers.process import Worker
from peers.server import Server

from turnout.lab.jobs.prompts import Prompts
from turnout.lab.results.markdown import markdown_table
from turnout.lab.results.summary import Summary
from turnout.lab.workloads.source import load_workload
from turnout.models.hub.resolve import resolve_model

W2 = "burst:requests=32,prompt=128,output=64"
W3 = "burst:requests=32,prompt=uniform:16:512,output=uniform:8:128"
W5 = "poisson:rate={rate:.4f},requests={requests},prompt=uniform:16:512,output=uniform:8:128"
FROM_W3, FROM_W5, FROM_WARMING = 1_000, 2_000, 3_000
"""The seeds of their turns count from here: of one seed, prompts of all workloads begin alike."""
CORES = os.cpu_count() or 1
LOAD = 0.7
"""Of Turnout's capacity."""
REPORTED: Mapping[str, Callable[[Summary], float]] = {
    "mean TTFT": lambda turn: turn.latencies["ttft"].mean,
    "median": lambda turn: turn.latencies["ttft"].median,
    "p99": lambda turn: turn.latencies["ttft"].percentiles[99.0],
    "mean TPOT": lambda turn: turn.latencies["tpot"].mean,
}
"""Of W5, milliseconds."""


@dataclass
class ServerTurns:
    """The figures of a server, turn by turn."""

    w2: list[float] = field(default_factory=list)
    """Tokens a second."""
    clients: list[float] = field(default_factory=list)
    """Of the time of all cores in W2, the share that clients had."""
    w3: list[float] = field(default_factory=list)
    capacity: list[float] = field(default_factory=list)
    """Requests a second in W3."""
    w5: list[Summary] = field(default_factory=list)


def warm(servers: Sequence[Server], alone: Worker, turns: int) -> None:
    """Has every engine serve W3, turn by turn."""
    for turn in range(turns):
        rate(alone, W3, FROM_WARMING + turn)
        for server in servers:
            server.play(W3, FROM_WARMING + turn)


def at_once(servers: Sequence[Server], alone: Worker, turns: int) -> tuple[list[float], list[ServerTurns]]:
    """W2 of the engine alone, and W2 and W3 of servers."""
    engine: list[float] = []
    reached = [ServerTurns() for _ in servers]
    contenders: list[Callable[[int], None]] = [
        lambda turn: engine.append(rate(alone, W2, turn)),
        *(partial(play_w2, *each) for each in zip(servers, reached, strict=True)),
    ]
    for turn in range(1, turns + 1):
        for take_turn in contenders if turn % 2 else reversed(contenders):
            take_turn(turn)
        for server, theirs in zip(servers, reached, strict=True):
            summary = server.play(W3, FROM_W3 + turn)
            theirs.w3.append(summary.output_throughput)
            theirs.capacity.append(summary.request_throughput)
    return engine, reached


def rate(alone: Worker, workload: str, seed: int) -> float:
    """Tokens a second of the engine alone, given at once what clients send."""
    time.sleep(REST)
    jobs = load_workload(workload, seed).jobs
    prompts = Prompts(jobs, seed)
    seconds: float = alone.run([(prompts.of(index), job.output) for index, job in enumerate(jobs)])
    return sum(job.output for job in jobs) / seconds


def play_w2(server: Server, theirs: ServerTurns, turn: int) -> None:
    time.sleep(REST)
    theirs.w2.append(server.play(W2, turn).output_throughput)
    theirs.clients.append(server.clients / CORES)


def arriving(servers: Sequence[Server], reached: list[ServerTurns], turns: int, requests: int) -> float:
    """Plays W5; the requests a second that come."""
    pace = LOAD * statistics.median(reached[0].capacity)
    for turn in range(1, turns + 1):
        for server, theirs in zip(servers, reached, strict=True):
            theirs.w5.append(server.play(W5.format(rate=pace, requests=requests), FROM_W5 + turn))
            latency = theirs.w5[-1].latencies["ttft"]
            click.echo(f"W5 {server.name}: p99 TTFT {latency.percentiles[99.0]:,.0f} ms", err=True)
    return pace


def table(servers: Sequence[Server], engine: list[float], reached: list[ServerTurns]) -> str:
    headings = ["", "W2", "of the engine alone", "clients' CPU", "W3", *(f"W5: {name}" for name in REPORTED)]
    rows = [
        (
            "turnout, the engine alone",
            f"{statistics.median(engine):,.1f} tokens/s",
            *[""] * (len(headings) - 2),
        )
    ]
    for server, theirs in zip(servers, reached, strict=True):
        reported = (of_turns(theirs.w5, figure) for figure in REPORTED.values())
        at_once = [f"{statistics.median(rates):,.1f} tokens/s" for rates in (theirs.w2, theirs.w3)]
        of_alone = ratio(theirs.w2, engine) if theirs is reached[0] else ""
        clients = f"{statistics.median(theirs.clients):.0%}"
        rows.append((f"{server.name} over HTTP", at_once[0], of_alone, clients, at_once[1], *reported))
    return markdown_table(headings, rows)


def of_turns(turns: list[Summary], figure: Callable[[Summary], float]) -> str:
    values = [figure(turn) for turn in turns]
    return f"{statistics.median(values):,.0f} ms ({min(values):,.0f} to {max(values):,.0f})"


@click.command(help=__doc__, params=options(SERVERS, "vllm"))
@click.option("--repeats", default=5, show_default=True, type=click.IntRange(min=1), help="Turns of each.")
@click.option("--warm", "warming", default=3, show_default=True, type=click.IntRange(min=0),
              help="Turns of W3 before figures are taken.")  # fmt: skip
@click.option("--http-cores", default=0, show_default=True, type=click.IntRange(min=0),
              help="For what speaks HTTP and for clients alone.")  # fmt: skip
@click.option("--requests", default=100, show_default=True, type=click.IntRange(min=1),
              help="In W5, each turn.")  # fmt: skip
def main(
    model: str,
    peers: list[str],
    dtype: str,
    quantized: bool,
    repeats: int,
    warming: int,
    http_cores: int,
    requests: int,
    folder: Path,
    write: Path | None,
    mark: str,
) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    engines, others = divided(http_cores)
    threads = len(engines)
    setting = Setting(resolve_model(model).absolute(), quantized, dtype, threads, folder.absolute())
    os.sched_setaffinity(0, engines)  # as all that is started has from here
    with ExitStack() as running:
        alone = turnout(setting)
        running.callback(alone.stop)
        servers = []
        for start in (turnout_server, *(SERVERS[peer] for peer in peers)):
            servers.append(start(setting))
            running.callback(servers[-1].stop)
        move([os.getpid(), *(server.pid for server in servers)], others)
        warm(servers, alone, warming)
        engine, reached = at_once(servers, alone, repeats)
        pace = arriving(servers, reached, repeats, requests)
    where = f"HTTP and clients on {len(others)} more" if http_cores else "clients on the same"
    what = (
        f"{machine()} ({features()}), {threads} threads, {where}; medians of {repeats} turns, "
        f"W5 at {pace:.2f} requests a second, {requests} in a turn."
    )
    publish(f"{what}\n\n{table(servers, engine, reached)}", write, mark or f"http-{setting.model.name}")


if __name__ == "__main__":
    main()
