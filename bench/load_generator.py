"""Measures the load generator itself: streams from a server that only streams, on one core each.

The server sends every stream's tokens at a fixed pace; nothing is computed. So whatever is late is the load
generator's doing, or the machine's: how late a bare timer is on it is measured in the same run. On a machine
that is busy otherwise, ``chrt -f 5 python bench/load_generator.py`` gives it its core; what a hypervisor gave
to other machines meanwhile is shown.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import re
import subprocess
import sys
import time
from pathlib import Path

import click
import numpy as np
import psutil

from turnout.lab.jobs.prompts import Prompts
from turnout.lab.load.generator import LoadRun, run_load
from turnout.lab.load.target import Target
from turnout.lab.results.summary import summarize
from turnout.lab.workloads.source import load_workload

EVENT = (
    b'data: {"id":"cmpl-0c1f6f0e8d6b4c5a","object":"text_completion","created":1795220583,"model":"pace",'
    b'"choices":[{"index":0,"text":" token","logprobs":null,"finish_reason":null,"stop_reason":null}]}\n\n'
)


async def stream(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, pace: float) -> None:
    """Answers one connection's requests, each of `pace` tokens a second."""
    clock = asyncio.get_running_loop().time
    try:
        while True:
            head = await reader.readuntil(b"\r\n\r\n")
            found = re.search(rb"(?i)content-length: (\d+)", head)
            assert found is not None
            body = json.loads(await reader.readexactly(int(found[1])))
            writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
            due = clock()
            for _ in range(body["max_tokens"]):
                writer.write(b"%x\r\n%s\r\n" % (len(EVENT), EVENT))
                due += 1 / pace
                await asyncio.sleep(max(0.0, due - clock()))
            usage = {"prompt_tokens": len(body["prompt"]), "completion_tokens": body["max_tokens"]}
            last = f"data: {json.dumps({'choices': [], 'usage': usage})}\n\ndata: [DONE]\n\n".encode()
            writer.write(b"%x\r\n%s\r\n0\r\n\r\n" % (len(last), last))
    except (asyncio.IncompleteReadError, ConnectionError):
        writer.close()


async def serve(pace: float) -> None:
    server = await asyncio.start_server(lambda r, w: stream(r, w, pace), "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


async def bare_timer(rate: float, count: int) -> list[float]:
    """How late, in seconds, this machine wakes a process that only sleeps."""
    rng, due, late = random.Random(0), time.perf_counter(), []
    for _ in range(count):
        due += rng.expovariate(rate)
        await asyncio.sleep(max(0.0, due - time.perf_counter()))
        late.append(time.perf_counter() - due)
    return late


def milliseconds(seconds: list[float]) -> str:
    return f"p50 {1000 * np.median(seconds):.2f}, p99 {1000 * np.percentile(seconds, 99):.2f}"


def report(load: LoadRun, late: list[float], cpu: float) -> None:
    summary = summarize(load.records, load.duration)
    lags = [record.sent - record.due for record in load.records]
    running = sum(record.e2el for record in load.records) / load.duration
    click.echo(
        f"{summary.output_throughput:,.0f} tokens/s from {running:.0f} streams, {summary.failed} failed; "
        f"{100 * cpu / load.duration:.0f}% of a core, "
        f"{1e6 * cpu / summary.total_output_tokens:.0f} µs a token; "
        f"late, ms: arrivals {milliseconds(lags)}, a bare timer {milliseconds(late)}"
    )


def measure(target: Target, streams: int, pace: float, seconds: float, seed: int) -> float:
    """One run; its p99 of arrivals' lateness, in seconds."""
    rate = streams * pace / 150
    workload = load_workload(
        f"poisson:rate={rate},requests={round(rate * seconds)},prompt=200,output=150", seed
    )
    late = asyncio.run(bare_timer(rate, 200))
    cpu = time.process_time()
    load = run_load(workload, target, Prompts(workload.jobs, seed=seed))
    report(load, late, time.process_time() - cpu)
    return load.lag


def stolen() -> float:
    """Core-seconds that the hypervisor gave to others since this machine started."""
    return float(getattr(psutil.cpu_times(), "steal", 0.0))


@click.command()
@click.option("--streams", default=64, show_default=True, help="At a time, on average.")
@click.option("--pace", default=40.0, show_default=True, help="Tokens a second of each.")
@click.option("--seconds", default=20.0, show_default=True)
@click.option("--rounds", default=5, show_default=True)
@click.option("--serve", "as_server", is_flag=True, hidden=True)
def main(streams: int, pace: float, seconds: float, rounds: int, as_server: bool) -> None:
    """Poisson arrivals of answers of 150 tokens; the server and the load generator keep to a core each."""
    cores = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, {cores[-1] if as_server else cores[0]})
    if as_server:
        asyncio.run(serve(pace))
        return
    command = [sys.executable, str(Path(__file__)), "--serve", "--pace", str(pace)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        try:
            assert server.stdout is not None
            target = Target.at(f"127.0.0.1:{int(server.stdout.readline())}", model="pace")
            begun, before = time.perf_counter(), stolen()
            found = [measure(target, streams, pace, seconds, seed) for seed in range(rounds)]
            share = (stolen() - before) / (time.perf_counter() - begun) / (os.cpu_count() or 1)
            click.echo(
                f"arrivals late, p99, median of {rounds} runs: {1000 * np.median(found):.2f} ms, "
                f"with {100 * share:.1f}% of the cores taken by the hypervisor"
            )
        finally:
            server.terminate()


if __name__ == "__main__":
    main()
