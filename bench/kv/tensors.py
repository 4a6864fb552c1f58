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

from turnout.config import EngineConfig
from turnout.core.interfaces.kv import PoolSize
from turnout.core.registry.registry import Registry
from turnout.core.scheduling.scheduler import Capacity
from turnout.core.types.request import RequestSpec
from turnout.core.types.sampling_params import SamplingParams
from turnout.lab.results.markdown import markdown_table, write_marked
from turnout.lab.simulation.scripted.play import Arrival, Play
from turnout.lab.simulation.scripted.script import scripted_request
from turnout.runner.assembly import build_engine
from turnout.runner.checkpoint import open_checkpoint

VOCABULARY = 4000
"""Token ids that prompts are drawn from."""
POOL = 1024
"""Positions in the pool of the engines that preempt."""
WARM_UP = 3
"""Rounds that are not counted."""


def memory_of(positions: int) -> int:
    """Bytes, of the embedded model's keys and values in float32."""
    registry = Registry.load()
    spec = open_checkpoint(registry, "turnout-tiny").spec
    return positions * registry.create("kv", "paged").bytes_per_token(spec, itemsize=4)


Arrivals = list[tuple[int, RequestSpec]]
"""Each with the number of steps before it comes."""


@dataclass(frozen=True)
class AtOnce:
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


Workload = AtOnce | Interrupted


def _request(number: int, rng: random.Random, prompt: int, output: int, priority: int = 0) -> RequestSpec:
    return RequestSpec(
        id=str(number),
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
    swap_outs: int


class TimedArm:
    """An engine, built once; each run leaves it empty."""

    def __init__(self, name: str, **options: object) -> None:
        self.name = name
        assembled = build_engine(EngineConfig(dtype="float32", device="cpu", **options))
        self.engine = assembled.engine
        self.summary = assembled.ready.summary

    def run(self, workload: Workload, number: int) -> Round:
        # Of other prompts than any other workload's, and any other round's.
        rng = random.Random(f"{workload}, round {number}")
        engine, todo = self.engine, list(reversed(workload.arrivals(rng)))
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
        preemptions, swap_outs = after.preemptions - before.preemptions, after.swap_outs - before.swap_outs
        return Round(seconds, tokens, preemptions, swap_outs)


Rounds = list[Round]


def compare(arms: Sequence[TimedArm], workload: Workload, rounds: int) -> dict[str, Rounds]:
    """The arms' rounds, by name; the first few are not among them."""
    found: dict[str, Rounds] = {arm.name: [] for arm in arms}
    for number in range(rounds + WARM_UP):
        for arm in random.Random(number).sample(arms, len(arms)):
            result = arm.run(workload, number)
            if number >= WARM_UP:
                found[arm.name].append(result)
                click.echo(f"{workload}, round {number}: {arm.name} {result}", err=True)
    return found


def faster(rounds: Rounds, than: Rounds) -> str:
    """How much more throughput, in percent: median over the rounds."""
    ratio = statistics.median(b.seconds / a.seconds for a, b in zip(rounds, than, strict=True))
    return f"{ratio - 1:+.1%}"


def spread(rounds: Rounds, than: Rounds) -> str:
    """The quartiles of what `faster` is the median of."""
    ratios = [b.seconds / a.seconds - 1 for a, b in zip(rounds, than, strict=True)]
    low, _, high = statistics.quantiles(ratios, n=4)
    return f"{low:+.0%} to {high:+.0%}"


def throughput(rounds: Rounds) -> str:
    return f"{statistics.median(result.tokens / result.seconds for result in rounds):,.0f}"


# ------------------------------------------------------------------ the tables


def overhead(rounds: int) -> str:
    """Prefix caching where nothing is ever found."""
    # A small pool, soon used up: blocks are evicted in each round.
    memory = {"kv_memory": memory_of(2 * POOL), "max_model_len": POOL}
    arms = [
        TimedArm("without", kv="paged:prefix_caching=false", **memory),
        TimedArm("with", kv="paged", **memory),
    ]
    rows = []
    for workload in (AtOnce(8, 128, 8), AtOnce(16, 32, 16)):
        # The difference is small, so that it takes many rounds to see it.
        found = compare(arms, workload, 6 * rounds)
        without, caching = found["without"], found["with"]
        a_token = statistics.median(result.seconds / result.tokens for result in without)
        share = f"{1e6 * keeping_books(workload):.2f} of {1e6 * a_token:,.0f}"
        rows.append((str(workload), faster(caching, without), spread(caching, without), share))
    if hits := arms[1].engine.scheduler.kv.snapshot().hits:
        raise RuntimeError(f"{hits} tokens were found in the cache; nothing should have been")
    headings = ("requests × (prompt + output)", "throughput", "half of the rounds", "bookkeeping, us a token")
    return markdown_table(headings, rows)


class Books:
    """An engine without a model: what is left is the host's work."""

    def __init__(self, backend: str) -> None:
        registry = Registry.load()
        cache = registry.create("kv", backend).cache(
            PoolSize(2 * POOL), registry.create("kv_eviction", "lru")
        )
        policy = registry.create("scheduler", "fcfs")
        predictor = registry.create("length_predictor", "max_tokens")
        self._play = Play(cache, policy, predictor, Capacity(512, 256), max_model_len=POOL)

    def run(self, workload: AtOnce, number: int) -> float:
        """Seconds."""
        arrivals = [
            Arrival(0.0, scripted_request(spec.id, spec.prompt, workload.output, seed=number))
            for _, spec in workload.arrivals(random.Random(number))
        ]
        started = time.process_time()
        for _ in self._play.steps(arrivals):
            pass
        return time.process_time() - started


def keeping_books(workload: AtOnce) -> float:
    """Seconds a token that prefix caching adds to the host's work."""
    without, caching = Books("paged:prefix_caching=false"), Books("paged")
    differences = [caching.run(workload, number) - without.run(workload, number) for number in range(101)]
    return statistics.median(differences) / (workload.requests * (workload.prompt + workload.output))


def swap(rounds: int) -> str:
    """Where requests are preempted."""
    memory = {
        "kv_memory": memory_of(POOL),
        "max_model_len": POOL - 16,
        "max_num_batched_tokens": 512,
        "scheduler": "priority",
    }
    swap = {**memory, "swap_memory": memory_of(4 * POOL)}
    arms = [
        TimedArm("recompute", preemption="recompute", **memory),
        TimedArm("swap", preemption="swap", **swap),
        TimedArm("auto", preemption="auto", **swap),
    ]
    workloads: list[Workload] = [
        AtOnce(24, 16, 64),
        AtOnce(7, 144, 64),
        Interrupted(2, 448, 64, 6, 10),
    ]
    rows = [_swap_row(workload, compare(arms, workload, rounds)) for workload in workloads]
    headings = (
        "requests × (prompt + output)",
        "preemptions",
        "swapped out by `auto`",
        "tokens/s, `recompute`",
        "`swap`",
        "`auto`",
        "`auto` beside the better",
    )
    return f"{markdown_table(headings, rows)}\n\nThe model's costs in this run: {arms[-1].summary[-1]}."


def _swap_row(workload: Workload, found: dict[str, Rounds]) -> tuple[str, ...]:
    recompute, swapped, auto = found["recompute"], found["swap"], found["auto"]
    better = min((recompute, swapped), key=lambda arm: statistics.median(result.seconds for result in arm))
    return (
        str(workload),
        f"{statistics.median(result.preemptions for result in recompute):.0f}",
        f"{statistics.median(result.swap_outs for result in auto):.0f}",
        throughput(recompute),
        faster(swapped, recompute),
        faster(auto, recompute),
        faster(auto, better),
    )


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
