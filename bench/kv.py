"""KV memory on real tensors: what prefix caching costs who gains nothing, and swap beside computing again.

All arms of a table run in one process, on one thread, in short rounds that take turns, since a machine's
speed drifts; figures are medians over the rounds of what an arm took beside another in the same round. Time
is the process's CPU time: on a machine that others use too, the clock on the wall measures them as well.
"""

from __future__ import annotations

import random
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import click
import torch

from turnout.core.config import EngineConfig
from turnout.core.request import RequestSpec, SamplingParams
from turnout.lab.marked import write_marked
from turnout.runner.assembly import build_engine

VOCABULARY = 4000
"""Token ids that prompts are drawn from."""


Arrivals = list[tuple[int, RequestSpec]]
"""Each with the number of steps before it comes."""


@dataclass(frozen=True)
class Burst:
    """Requests that come all at once; lengths in tokens. With little memory they outgrow it together."""

    requests: int
    prompt: int
    output: int

    def __str__(self) -> str:
        return f"{self.requests} × ({self.prompt:,} + {self.output}) at once"

    def arrivals(self, rng: random.Random) -> Arrivals:
        return [(0, _request(number, rng, self.prompt, self.output)) for number in range(self.requests)]


@dataclass(frozen=True)
class Interrupted:
    """Long requests in the background, and urgent ones that come again and again and take their memory."""

    background: int
    prompt: int
    output: int
    urgent: int
    every: int
    """Steps between two urgent requests."""

    def __str__(self) -> str:
        return f"{self.background} × ({self.prompt:,} + {self.output}), interrupted {self.urgent} times"

    def arrivals(self, rng: random.Random) -> Arrivals:
        calm = [(0, _request(n, rng, self.prompt, self.output, 1)) for n in range(self.background)]
        urgent = [
            (self.every * (n + 1), _request(self.background + n, rng, self.prompt, 4))
            for n in range(self.urgent)
        ]
        return calm + urgent


Workload = Burst | Interrupted


def _request(number: int, rng: random.Random, prompt: int, output: int, priority: int = 0) -> RequestSpec:
    return RequestSpec(
        id=str(number),
        # New ones each round: a prefix cache must have nothing to find.
        prompt=[rng.randrange(5, VOCABULARY) for _ in range(prompt)],
        params=SamplingParams(temperature=0, max_tokens=output, ignore_eos=True),
        seed=0,
        priority=priority,
    )


@dataclass(frozen=True)
class Round:
    """What an engine took for a workload."""

    seconds: float
    tokens: int
    """Of prompts and outputs."""
    preemptions: int
    parkings: int


class Arm:
    """An engine, built once; each run leaves it empty."""

    def __init__(self, name: str, **options: object) -> None:
        self.name = name
        assembled = build_engine(EngineConfig(dtype="float32", device="cpu", **options))
        self.engine = assembled.engine
        self.summary = assembled.ready.summary

    def run(self, workload: Workload, seed: int) -> Round:
        engine, todo = self.engine, list(reversed(workload.arrivals(random.Random(seed))))
        before, started = engine.stats(), time.process_time()
        tokens = steps = 0
        while todo or engine.busy:
            while todo and todo[-1][0] <= steps:
                _, spec = todo.pop()
                tokens += len(spec.prompt) + (spec.params.max_tokens or 0)
                engine.add(spec)
            if any(delta.error for delta in engine.step()):
                raise RuntimeError(f"{self.name} failed at {workload}")
            steps += 1
        seconds, after = time.process_time() - started, engine.stats()
        preemptions, parkings = after.preemptions - before.preemptions, after.parkings - before.parkings
        return Round(seconds, tokens, preemptions, parkings)


Rounds = list[Round]


def compare(arms: Sequence[Arm], workload: Workload, rounds: int) -> dict[str, Rounds]:
    """The arms' rounds, by name; a first round of each is a warm-up and not among them."""
    found: dict[str, Rounds] = {arm.name: [] for arm in arms}
    for number in range(rounds + 1):
        for arm in random.Random(number).sample(arms, len(arms)):
            result = arm.run(workload, seed=1000 + number)
            if number:
                found[arm.name].append(result)
                click.echo(f"{workload}, round {number}: {arm.name} {result}", err=True)
    return found


def faster(rounds: Rounds, than: Rounds) -> str:
    """How much more throughput, in percent: median over the rounds."""
    ratio = statistics.median(b.seconds / a.seconds for a, b in zip(rounds, than, strict=True))
    return f"{ratio - 1:+.1%}"


def throughput(rounds: Rounds) -> str:
    return f"{statistics.median(result.tokens / result.seconds for result in rounds):,.0f}"


def table(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    under = "---" + "|--:" * (len(headings) - 1)
    cells = [f"| {' | '.join(line)} |" for line in (headings, *rows)]
    return "\n".join((cells[0], f"|{under}|", *cells[1:]))


# ------------------------------------------------------------------ the tables


def overhead(rounds: int) -> str:
    """Prefix caching where nothing is ever found."""
    arms = [
        Arm("without", kv="paged:prefix_caching=false", kv_memory="64MiB"),
        Arm("with", kv="paged", kv_memory="64MiB"),
    ]
    rows = []
    for workload in (Burst(8, 256, 8), Burst(16, 64, 32), Burst(32, 16, 32)):
        found = compare(arms, workload, rounds)
        rows.append((str(workload), throughput(found["without"]), faster(found["with"], found["without"])))
    if hits := arms[1].engine.scheduler.kv.snapshot().hits:
        raise RuntimeError(f"{hits} tokens were found in the cache; nothing should have been")
    return table(("requests × (prompt + output)", "tokens/s without", "with prefix caching"), rows)


POOL = 1024
"""Positions in the pool of the engines that preempt."""


def swap(rounds: int) -> str:
    """Where requests are preempted."""
    memory = {
        "kv_memory": POOL * BYTES_PER_TOKEN,
        "max_model_len": POOL - 16,
        "max_num_batched_tokens": 512,
        "scheduler": "priority",
    }
    parking = {**memory, "swap_memory": 4 * POOL * BYTES_PER_TOKEN}
    arms = [
        Arm("recompute", preemption="recompute", **memory),
        Arm("swap", preemption="swap", **parking),
        Arm("auto", preemption="auto", **parking),
    ]
    workloads: list[Workload] = [Burst(16, 16, 112), Burst(6, 192, 96), Interrupted(2, 448, 48, 8, 5)]
    rows = [_swap_row(workload, compare(arms, workload, rounds)) for workload in workloads]
    headings = (
        "requests × (prompt + output)",
        "preemptions",
        "parked by `auto`",
        "tokens/s, `recompute`",
        "`swap`",
        "`auto`",
        "`auto` beside the better",
    )
    return f"{table(headings, rows)}\n\nThe model's costs in this run: {arms[-1].summary[-1]}."


def _swap_row(workload: Workload, found: dict[str, Rounds]) -> tuple[str, ...]:
    recompute, swapped, auto = found["recompute"], found["swap"], found["auto"]
    better = min((recompute, swapped), key=lambda arm: statistics.median(result.seconds for result in arm))
    return (
        str(workload),
        f"{statistics.median(result.preemptions for result in recompute):.0f}",
        f"{statistics.median(result.parkings for result in auto):.0f}",
        throughput(recompute),
        faster(swapped, recompute),
        faster(auto, recompute),
        faster(auto, better),
    )


BYTES_PER_TOKEN = 2 * 8 * 2 * 64 * 4
"""Of the embedded model: K and V, layers, KV heads, head dim, fp32."""

PARTS: Mapping[str, Callable[[int], str]] = {"overhead": overhead, "swap": swap}


@click.command()
@click.option("--rounds", default=15, show_default=True)
@click.option("--write", type=click.Path(path_type=Path, exists=True), help="Put the tables into this file.")
@click.argument("parts", nargs=-1, type=click.Choice(list(PARTS)))
def main(rounds: int, write: Path | None, parts: tuple[str, ...]) -> None:
    """Measure all PARTS on the embedded model, or those named."""
    torch.set_num_threads(1)
    for name in parts or PARTS:
        text = PARTS[name](rounds)
        click.echo(f"{name}\n\n{text}\n")
        if write is not None:
            write_marked(write, name, text)


if __name__ == "__main__":
    main()
