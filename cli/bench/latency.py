"""``turnout bench latency``."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from pathlib import Path

import click
import numpy as np

from turnout.cli.bench.output import output_options, progress_bar, run_facts, write_csv, write_json
from turnout.cli.options.engine_options import engine_options, offline_config
from turnout.cli.terminal.table import tabular
from turnout.core.process import freeze_garbage
from turnout.lab.jobs.job import Job
from turnout.lab.results.record import Record

__all__ = ["command"]

RANKS = (10, 25, 50, 75, 90, 99)
Count = click.IntRange(min=1)


@click.command(name="latency")
@click.option("--batch-size", default=8, show_default=True, type=Count, help="Requests in a batch.")
@click.option("--prompt", default=32, show_default=True, type=Count, help="Tokens of each prompt.")
@click.option("--output", default=128, show_default=True, type=Count, help="Tokens of each output.")
@click.option("--seed", default=0, show_default=True, help="Seed of the prompts.")
@click.option("--repeat", default=10, show_default=True, type=Count, help="Batches to measure.")
@click.option(
    "--warm-up",
    default=3,
    show_default=True,
    type=click.IntRange(min=0),
    help="Batches to run before measuring.",
)
@output_options("a line for each batch")
@engine_options
def command(
    batch_size: int,
    prompt: int,
    output: int,
    seed: int,
    repeat: int,
    warm_up: int,
    json_file: Path | None,
    csv_file: Path | None,
    **engine: object,
) -> None:
    """Measure how long an engine takes for a batch of equal requests, without a server."""
    config = offline_config(engine)
    from turnout.lab.jobs.prompts import Prompts
    from turnout.lab.offline import run_offline
    from turnout.runner.assembly import build_engine

    assembled = build_engine(config)
    click.echo("\n".join(assembled.ready.summary), err=True)
    jobs = [Job(0.0, prompt, output)] * batch_size
    rows: list[dict[str, float]] = []
    with freeze_garbage(), progress_bar(repeat + warm_up, "batches") as done:
        for number in range(warm_up + repeat):
            prompts = Prompts(jobs, seed + number, assembled.ready.vocab_size)
            records = run_offline(assembled.engine, jobs, prompts)
            rows += [_figures(records)] if number >= warm_up else []
            done(None)
    shape = {"batch_size": batch_size, "prompt": prompt, "output": output}
    figures = _summary(rows)
    click.echo("\n".join(_table(rows)))
    write_json(json_file, {**run_facts(), "model": config.model, "seed": seed, **shape, **figures})
    write_csv(csv_file, rows)


def _figures(records: Sequence[Record]) -> dict[str, float]:
    """Returns the batch's latency and the means of its requests, in seconds."""
    return {
        "latency": max(record.finished for record in records),
        "ttft": statistics.fmean(record.ttft for record in records),
        "tpot": statistics.fmean(record.tpot for record in records),
    }


def _summary(rows: Sequence[dict[str, float]]) -> dict[str, object]:
    """Returns the figures under the names of ``vllm bench latency``."""
    latencies = [row["latency"] for row in rows]
    return {
        "avg_latency": statistics.fmean(latencies),
        "latencies": latencies,
        "percentiles": {str(rank): float(np.percentile(latencies, rank)) for rank in RANKS},
        "ttfts": [row["ttft"] for row in rows],
        "tpots": [row["tpot"] for row in rows],
    }


def _table(rows: Sequence[dict[str, float]]) -> list[str]:
    def row(label: str, name: str) -> list[str]:
        values = [1000 * each[name] for each in rows]
        figures = [statistics.fmean(values), *np.percentile(values, RANKS)]
        return [label, *(f"{figure:.2f}" for figure in figures)]

    header = ["milliseconds", "mean", *(f"p{rank}" for rank in RANKS)]
    return tabular(
        [header, row("Batch", "latency"), row("First token", "ttft"), row("Token after the first", "tpot")]
    )
