"""What other clients notice while 100 send the costliest requests that the server accepts or refuses.

    python bench/hostile/costly_requests.py                          # all attacks, some 3 minutes
    python bench/hostile/costly_requests.py --seconds 10 --attack messages --patience 60

A client streams answers from a served turnout-tiny, first alone, then while attackers, all at once, send a
request each, and again once all have been answered. Meanwhile another process asks ``/health``, each time on
a new connection. A line says for each attack: how slow ``/health`` was; the time between two of the stream's
tokens, and by how much its 99th percentile grew; the most memory that the server's process took; the load of
the machine; and how many attackers got which status, the slowest after how long, or left. An attack that
generates text takes its share of the engine, so its gap grows as beside any other 100 clients.
"""

from __future__ import annotations

import asyncio
import http.client
import json
import multiprocessing
import os
import statistics
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from itertools import takewhile
from multiprocessing.connection import Connection

import click
import psutil
from attacks import ATTACKS
from served import served

STREAM = json.dumps({"prompt": "import os\n", "max_tokens": 400, "stream": True, "ignore_eos": True})
LEFT = "left"

Answers = dict[str, list[float]]
"""For each status how long it took each time."""


@click.command()
@click.option("--seconds", default=2.0, show_default=True, help="Time in which attackers begin once more.")
@click.option("--clients", default=100, show_default=True, help="Attackers at once.")
@click.option("--patience", default=5.0, show_default=True, help="Seconds until an attacker leaves.")
@click.option("--attack", "wanted", default="", help="Only attacks whose name has this text.")
def main(seconds: float, clients: int, patience: float, wanted: str) -> None:
    """Measure what costly requests do to other clients."""
    print(
        f"{'':>41} {'/health p99':>11} {'max':>7} {'gap p99':>7} {'grew by':>7} {'max':>7} {'memory':>7} "
        f"{'load':>5}  answers, the slowest in seconds"
    )
    with served("--kv-memory", "256MiB", "--log-level", "error") as (process, port):
        for name in ATTACKS:
            if wanted in name:
                print(f"{name:>41} {_measured(process, port, name, seconds, clients, patience)}", flush=True)


def _measured(
    process: psutil.Process, port: int, name: str, seconds: float, clients: int, patience: float
) -> str:
    stream = Watch(_gaps, port)
    time.sleep(seconds / 2)
    alone = stream.end()
    _reset_peak(process)
    stream, health = Watch(_gaps, port), Watch(_health, port)
    with ProcessPoolExecutor(1) as pool:
        answers = pool.submit(_attacked, port, name, seconds, clients, patience).result()
    gaps, times = stream.end(), health.end()
    told = ", ".join(f"{len(took)} x {status} in {max(took):.1f}" for status, took in answers.items())
    grown = _p99(gaps) - _p99(alone)
    return (
        f"{1e3 * _p99(times):8.0f} ms {1e3 * max(times):4.0f} ms {1e3 * _p99(gaps):4.0f} ms "
        f"{1e3 * grown:4.0f} ms {1e3 * max(gaps):4.0f} ms {_peak(process) / 1e6:4.0f} MB "
        f"{os.getloadavg()[0]:5.1f}  {told}"
    )


def _p99(times: list[float]) -> float:
    return statistics.quantiles(times, n=100, method="inclusive")[-1] if len(times) > 1 else float("nan")


# ------------------------------------------------------------------ memory


def _reset_peak(process: psutil.Process) -> None:
    with open(f"/proc/{process.pid}/clear_refs", "w") as file:
        file.write("5")


def _peak(process: psutil.Process) -> int:
    """The most memory that a process took since `_reset_peak`, in bytes."""
    with open(f"/proc/{process.pid}/status") as file:
        line = next(line for line in file if line.startswith("VmHWM"))
    return 1024 * int(line.split()[1])


# ------------------------------------------------------------------ clients, in processes of their own


class Watch:
    """Times that a process of its own takes until it is to end."""

    def __init__(self, times: Callable[[int], Iterator[float]], port: int) -> None:
        self._pipe, theirs = multiprocessing.Pipe()
        self._process = multiprocessing.Process(target=self._run, args=(times, port, theirs))
        self._process.start()

    @staticmethod
    def _run(times: Callable[[int], Iterator[float]], port: int, pipe: Connection) -> None:
        pipe.send([*takewhile(lambda _: not pipe.poll(), times(port))])

    def end(self) -> list[float]:
        self._pipe.send(None)
        times: list[float] = self._pipe.recv()
        self._process.join()
        return times


def _health(port: int) -> Iterator[float]:
    while True:
        begun = time.perf_counter()
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        connection.request("GET", "/health")
        assert connection.getresponse().status == 200
        connection.close()
        yield time.perf_counter() - begun
        time.sleep(0.02)


def _gaps(port: int) -> Iterator[float]:
    """The times between the tokens of one stream after another."""
    while True:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        connection.request("POST", "/v1/completions", STREAM, {"Content-Type": "application/json"})
        response, last = connection.getresponse(), None
        if response.status != 200:
            print(f"the stream was refused: {response.read().decode()}", file=sys.stderr)
            time.sleep(0.5)
        while line := response.readline():
            if line.startswith(b"data: {"):
                now = time.perf_counter()
                if last is not None:
                    yield now - last
                last = now


def _attacked(port: int, name: str, seconds: float, clients: int, patience: float) -> Answers:
    make = ATTACKS[name]
    alike = make(0) == make(1)
    contents = [make(0)] * clients if alike else [make(number) for number in range(clients)]
    return asyncio.run(_attack(port, contents, seconds, patience))


async def _attack(port: int, contents: list[bytes], seconds: float, patience: float) -> Answers:
    answers: Answers = defaultdict(list)
    end = time.monotonic() + seconds

    async def ask(content: bytes) -> None:
        begun = time.perf_counter()
        try:
            async with asyncio.timeout(patience):
                status = await _status(port, content)
        except TimeoutError:
            status = LEFT
        except OSError as error:
            status = type(error).__name__
        answers[status].append(time.perf_counter() - begun)

    while True:
        await asyncio.gather(*(ask(content) for content in contents))
        if time.monotonic() >= end:
            return dict(sorted(answers.items()))


async def _status(port: int, content: bytes) -> str:
    """The status of the answer, once all of it has come."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        writer.write(content)
        line = await reader.readline()
        while await reader.read(2**20):
            pass
        return line[9:12].decode()
    finally:
        writer.close()


if __name__ == "__main__":
    main()
