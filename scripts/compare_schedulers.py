"""Every scheduling policy on one bursty workload of mixed lengths, as a table for docs/schedulers.md.

The engine runs in this process, in real time, on the embedded model; requests arrive by the clock. All get
the same arrivals, prompts and lengths. Rounds alternate between the policies, since a machine's speed drifts,
and figures are medians over the rounds.
"""

from __future__ import annotations

import random
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import click

from turnout.core.config import EngineConfig
from turnout.core.engine import Engine
from turnout.core.messages import Delta
from turnout.core.plugins import Registry
from turnout.core.request import RequestSpec, Timing
from turnout.core.sampling_params import SamplingParams
from turnout.lab.marked import write_marked
from turnout.runner.assembly import build_engine


class Arrival(NamedTuple):
    at: float
    """Seconds after the start."""
    spec: RequestSpec


class Figures(NamedTuple):
    """Of one round; times in milliseconds."""

    mean_ttft: float
    p99_ttft: float
    mean_tpot: float
    p99_tpot: float
    tokens_per_second: float
    preemptions: float


def workload(requests: int, rate: float, seed: int) -> list[Arrival]:
    """Gamma arrivals (coefficient of variation 3), lognormal prompts, one answer in four long.

    Four clients, the first sends more than half; some requests are urgent, and all have a deadline.
    """
    rng, at, arrivals = random.Random(seed), 0.0, []
    for number in range(requests):
        at += rng.gammavariate(1 / 9, 9 / rate)
        length = min(600, max(8, round(rng.lognormvariate(4.5, 0.9))))
        output = rng.randint(144, 240) if rng.random() < 0.25 else rng.randint(12, 36)
        spec = RequestSpec(
            id=str(number),
            prompt=[rng.randrange(5, 4000) for _ in range(length)],
            # Every answer is as long as its bound, so that the policies that rank by length know it.
            params=SamplingParams(temperature=0, max_tokens=output, ignore_eos=True),
            seed=0,
            priority=rng.choice((0, 1, 1, 2)),
            client=f"client {rng.choice((0, 0, 0, 0, 1, 2, 3))}",
            ttft_deadline=30.0,
            deadline=60.0,
            timing=True,
        )
        arrivals.append(Arrival(at, spec))
    return arrivals


class Arm:
    """A policy and its engine, built once; `run` leaves it empty."""

    def __init__(self, name: str, kv_tokens: int, slots: int) -> None:
        self.name = name
        self._registry = Registry.load()
        config = EngineConfig(
            max_num_seqs=slots, kv="paged:prefix_caching=false", kv_memory=kv_tokens * _BYTES_PER_TOKEN
        )
        self._engine: Engine = build_engine(config).engine

    def run(self, arrivals: list[Arrival]) -> Figures:
        engine = self._engine
        engine.scheduler.policy = self._registry.create("scheduler", self.name)
        before, started = engine.stats(), time.monotonic()
        finished: list[tuple[RequestSpec, Timing]] = []
        todo = list(reversed(arrivals))
        specs = {arrival.spec.id: arrival.spec for arrival in arrivals}
        while todo or engine.busy:
            while todo and started + todo[-1].at <= time.monotonic():
                due = todo.pop()
                engine.add(_at(due.spec, started + due.at))
            if not engine.busy:
                time.sleep(max(0.0, started + todo[-1].at - time.monotonic()))
                continue
            for delta in engine.step():
                _collect(delta, specs, finished)
        elapsed = time.monotonic() - started
        after = engine.stats()
        tokens = after.output_tokens - before.output_tokens
        return _figures(finished, tokens / elapsed, after.preemptions - before.preemptions)


_BYTES_PER_TOKEN = 2 * 8 * 2 * 64 * 4
"""Of the embedded model: K and V, layers, KV heads, head dim, fp32."""


def _at(spec: RequestSpec, arrival: float) -> RequestSpec:
    import msgspec

    return msgspec.structs.replace(spec, arrival=arrival)


def _collect(delta: Delta, specs: dict[str, RequestSpec], finished: list[tuple[RequestSpec, Timing]]) -> None:
    if delta.error and delta.error_kind != "timeout":
        raise RuntimeError(delta.error)
    if delta.timing is not None:
        finished.append((specs[delta.request_id], delta.timing))


def _figures(finished: list[tuple[RequestSpec, Timing]], rate: float, preemptions: int) -> Figures:
    ttfts, tpots = [], []
    for spec, timing in finished:
        assert timing.first_token is not None and timing.finished is not None
        ttfts.append(1e3 * (timing.first_token - timing.arrival))
        output = spec.params.max_tokens or 1
        tpots.append(1e3 * (timing.finished - timing.first_token) / max(1, output - 1))
    return Figures(
        statistics.mean(ttfts), _p99(ttfts), statistics.mean(tpots), _p99(tpots), rate, float(preemptions)
    )


def _p99(values: list[float]) -> float:
    return sorted(values)[min(len(values) - 1, int(0.99 * len(values)))]


def table(results: dict[str, list[Figures]]) -> str:
    lines = [
        "| policy | mean TTFT ms | p99 TTFT ms | mean TPOT ms | p99 TPOT ms | tokens/s | preemptions |",
        "|---|--:|--:|--:|--:|--:|--:|",
    ]
    for name, rounds in results.items():
        medians = [statistics.median(column) for column in zip(*rounds, strict=True)]
        cells = [f"{value:,.0f}" if value >= 100 else f"{value:.1f}" for value in medians[:-1]]
        lines.append(f"| `{name}` | {' | '.join(cells)} | {medians[-1]:.0f} |")
    return "\n".join(lines)


def compare(arms: list[Arm], make: Callable[[int], list[Arrival]], rounds: int) -> dict[str, list[Figures]]:
    results: dict[str, list[Figures]] = {arm.name: [] for arm in arms}
    for number in range(rounds):
        # Each round another order: none always runs on a machine that the same one has warmed.
        for arm in random.Random(number).sample(arms, len(arms)):
            results[arm.name].append(arm.run(make(number)))
            click.echo(f"round {number + 1}: {arm.name}: {results[arm.name][-1]}", err=True)
    return results


@click.command()
@click.option("--requests", default=60, show_default=True)
@click.option("--rate", default=4.0, show_default=True, help="Requests a second.")
@click.option("--rounds", default=3, show_default=True)
@click.option("--slots", default=8, show_default=True, help="Sequences that run at once.")
@click.option("--kv-tokens", default=2560, show_default=True, help="Token positions of KV memory.")
@click.option("--write", type=click.Path(path_type=Path), help="Put the table into this file.")
@click.argument("names", nargs=-1)
def main(
    requests: int,
    rate: float,
    rounds: int,
    slots: int,
    kv_tokens: int,
    write: Path | None,
    names: tuple[str, ...],
) -> None:
    """Compare all scheduling policies, or those NAMED (with options, as for --scheduler)."""
    arms = [Arm(name, kv_tokens, slots) for name in names or Registry.load().names("scheduler")]
    arms[0].run(workload(4, 100.0, seed=99))  # warm-up
    results = compare(arms, lambda number: workload(requests, rate, seed=number), rounds)
    text = table(results)
    click.echo(text)
    if write is not None:
        write_marked(write, "table", text)


if __name__ == "__main__":
    main()
