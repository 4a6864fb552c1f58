"""An engine on a CPU that has the cores to itself, shares them with another engine, or with busy programs.

\b
    W1  one request after another, 128 tokens in, 64 out
    W2  batches of 32 requests, 32 tokens in, 64 out

Each engine is a process of its own. A turn of every setting is taken before a second of any; the table has
medians of tokens a second, and each setting's share of what the engine does alone. Nothing else should be
computing.
"""

from __future__ import annotations

import itertools
import random
import statistics
import subprocess
import sys
import time

import click

from turnout.lab.results.markdown import markdown_table

WORKLOADS = {"W1": (1, 128), "W2": (32, 32)}
"""Requests in a batch, and tokens of each prompt."""
OUTPUT = 64
BUSY = [sys.executable, "-c", "while True: pass"]
REST = 0.3
"""Seconds between turns: threads wait actively for a while after their last work."""


class Worker:
    """An engine in a process of its own, told what to do by lines of text."""

    def __init__(self, model: str, kernels: str) -> None:
        command = [sys.executable, __file__, "--model", model, "--cpu-kernels", kernels, "--serve"]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def begin(self, workload: str, seconds: float) -> None:
        assert self._process.stdin is not None
        print(workload, seconds, file=self._process.stdin, flush=True)

    def rate(self) -> float:
        """Waits for the turn that was begun; returns its tokens a second."""
        assert self._process.stdout is not None
        return float(self._process.stdout.readline())

    def end(self) -> None:
        self._process.kill()
        self._process.wait()


def serve(model: str, kernels: str) -> None:
    """What a worker's process does."""
    from turnout.config import EngineConfig
    from turnout.core.process import freeze_garbage
    from turnout.core.types.request import RequestSpec
    from turnout.core.types.sampling_params import SamplingParams
    from turnout.runner.assembly import build_engine

    engine = build_engine(EngineConfig(model=model, cpu_kernels=kernels, max_model_len=256)).engine
    numbers, rng = itertools.count(), random.Random(0)
    params = SamplingParams(temperature=0, max_tokens=OUTPUT, ignore_eos=True)

    def batch(requests: int, length: int, until: float) -> int:
        for _ in range(requests):
            prompt = [rng.randrange(engine.limits.vocab_size) for _ in range(length)]
            engine.add(RequestSpec(id=str(next(numbers)), prompt=prompt, params=params, seed=0))
        tokens = 0
        while engine.busy and time.monotonic() < until:
            tokens += sum(len(delta.tokens) for delta in engine.step())
        return tokens

    with freeze_garbage():
        for line in sys.stdin:
            workload, seconds = line.split()
            began = time.monotonic()
            tokens, until = 0, began + float(seconds)
            while time.monotonic() < until:
                tokens += batch(*WORKLOADS[workload], until)
            print(tokens / (time.monotonic() - began), flush=True)
            while engine.busy:
                engine.step()


def turn(setting: str, workers: list[Worker], workload: str, seconds: float) -> list[float]:
    """Tokens a second of each engine that computes in this setting."""
    busy = [subprocess.Popen(BUSY) for _ in range(2 if setting == "beside two busy programs" else 0)]
    serving = workers if setting == "two engines" else workers[:1]
    try:
        for worker in serving:
            worker.begin(workload, seconds)
        return [worker.rate() for worker in serving]
    finally:
        for process in busy:
            process.kill()
            process.wait()


SETTINGS = ("alone", "two engines", "beside two busy programs")


def measure(workers: list[Worker], workload: str, seconds: float, repeats: int) -> dict[str, list[float]]:
    for setting in SETTINGS[:2]:
        turn(setting, workers, workload, min(1.0, seconds))
    rates: dict[str, list[float]] = {setting: [] for setting in SETTINGS}
    for _ in range(repeats):
        for setting in SETTINGS:
            time.sleep(REST)
            rates[setting].append(min(turn(setting, workers, workload, seconds)))
    return rates


@click.command(help=__doc__)
@click.option("--model", default="turnout-tiny", show_default=True, help="A folder, or an embedded model.")
@click.option("--cpu-kernels", default="auto", show_default=True, help="As of `turnout serve`.")
@click.option("--seconds", default=3.0, show_default=True, help="Length of a turn.")
@click.option("--repeats", default=5, show_default=True, help="Turns of each setting.")
@click.option("--serve", "serving", is_flag=True, hidden=True)
def main(model: str, cpu_kernels: str, seconds: float, repeats: int, serving: bool) -> None:
    if serving:
        return serve(model, cpu_kernels)
    workers = [Worker(model, cpu_kernels) for _ in range(2)]
    try:
        rows = []
        for workload in WORKLOADS:
            rates = measure(workers, workload, seconds, repeats)
            alone = statistics.median(rates["alone"])
            for setting, found in rates.items():
                middle = statistics.median(found)
                spread = f"{min(found):,.0f} to {max(found):,.0f}"
                rows.append([workload, setting, f"{middle:,.0f}", spread, f"{middle / alone:.0%}"])
        header = ["", "the slower engine", "tokens/s", "turns", "of alone"]
        click.echo(markdown_table(header, rows, "llrrr"))
    finally:
        for worker in workers:
            worker.end()


if __name__ == "__main__":
    main()
