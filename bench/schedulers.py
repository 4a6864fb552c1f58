"""Every scheduling policy on one bursty workload: the table of docs/how-to/choose-a-scheduler.md.

The engine runs in this process, in real time, on the embedded model; requests arrive by the clock. All get
the same arrivals, prompts and lengths. Rounds alternate between the policies, since a machine's speed drifts,
and figures are medians over the rounds.
"""

from __future__ import annotations

import random
import statistics
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import click
import msgspec

from turnout.config import EngineConfig
from turnout.core.registry.registry import Registry
from turnout.core.types.request import RequestSpec
from turnout.core.types.sampling_params import SamplingParams
from turnout.lab.compare.runs.driver import Driver
from turnout.lab.compare.statistics.metrics import Figures, measure
from turnout.lab.jobs.job import Job, Workload
from turnout.lab.results.markdown import markdown_table, write_marked
from turnout.runner.assembly import build_engine
from turnout.runner.checkpoint import open_checkpoint

COLUMNS = {
    "mean_ttft": "mean TTFT ms",
    "p99_ttft": "p99 TTFT ms",
    "mean_tpot": "mean TPOT ms",
    "p99_tpot": "p99 TPOT ms",
    "output_throughput": "tokens/s",
    "preemptions": "preemptions",
}


@dataclass(frozen=True)
class JobSpecs:
    """Implements `Requests`."""

    specs: list[RequestSpec]
    workload: Workload

    def spec(self, index: int, arrival: float) -> RequestSpec:
        return msgspec.structs.replace(self.specs[index], arrival=arrival)

    def answered(self, index: int, tokens: list[int]) -> None:
        """No request goes on with an answer."""


def traffic(requests: int, rate: float, seed: int) -> JobSpecs:
    """Gamma arrivals (coefficient of variation 3), lognormal prompts, one answer in four long.

    Four clients, the first sends more than half; some requests are urgent, and all have a deadline.
    """
    rng, at, specs, jobs = random.Random(seed), 0.0, list[RequestSpec](), list[Job]()
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
        )
        specs.append(spec)
        jobs.append(Job(at, length, output))
    return JobSpecs(specs, Workload("bursty", jobs))


class PolicyArm:
    """A policy and its engine, built once; `run` leaves it empty."""

    def __init__(self, name: str, kv_tokens: int, slots: int) -> None:
        self.name = name
        self._registry = Registry.load()
        kv = "paged:prefix_caching=false"
        spec = open_checkpoint(self._registry, "turnout-tiny").spec
        position = self._registry.create("kv", kv).bytes_per_token(spec, itemsize=4)
        config = EngineConfig(max_num_seqs=slots, kv=kv, kv_memory=kv_tokens * position)
        self._engine = build_engine(config).engine

    def run(self, requests: JobSpecs) -> Figures:
        engine = self._engine
        engine.scheduler.policy = self._registry.create("scheduler", self.name)
        before = engine.stats().preemptions
        records = list(Driver(engine, requests.workload, requests).records())
        for record in records:
            if record.error:
                raise RuntimeError(f"{self.name}: request {record.index} failed: {record.error}")
        preemptions = engine.stats().preemptions - before
        figures = {**measure(records, None), "preemptions": float(preemptions)}
        return {name: figures[name] for name in COLUMNS}


def table(results: dict[str, list[Figures]]) -> str:
    rows = []
    for name, rounds in results.items():
        medians = {column: statistics.median(figures[column] for figures in rounds) for column in COLUMNS}
        preemptions = medians.pop("preemptions")
        cells = [f"{value:,.0f}" if value >= 100 else f"{value:.1f}" for value in medians.values()]
        rows.append((f"`{name}`", *cells, f"{preemptions:.0f}"))
    return markdown_table(("policy", *COLUMNS.values()), rows)


def compare(arms: list[PolicyArm], make: Callable[[int], JobSpecs], rounds: int) -> dict[str, list[Figures]]:
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
    arms = [PolicyArm(name, kv_tokens, slots) for name in names or Registry.load().names("scheduler")]
    arms[0].run(traffic(4, 100.0, seed=99))  # warm-up
    results = compare(arms, lambda number: traffic(requests, rate, seed=number), rounds)
    text = table(results)
    click.echo(text)
    if write is not None:
        write_marked(write, "table", text)


if __name__ == "__main__":
    main()
