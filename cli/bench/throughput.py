"""``turnout bench throughput``."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from pathlib import Path

import click

from turnout.cli.bench.output import output_options, progress_bar, run_facts, write_csv, write_json
from turnout.cli.options.engine_options import engine_options, offline_config
from turnout.cli.options.workload import find_workload
from turnout.cli.terminal.table import tabular
from turnout.core.process import freeze_garbage
from turnout.lab.results.record import Record

__all__ = ["command"]

Figures = dict[str, float]
MEASURED = ("elapsed_time", "requests_per_second", "tokens_per_second", "output_tokens_per_second")


@click.command(name="throughput")
@click.option(
    "--workload",
    default="burst:requests=64,prompt=128,output=128",
    show_default=True,
    help="Workload, whose requests all arrive at once; see `turnout bench workloads`.",
)
@click.option("--seed", default=0, show_default=True, help="Seed of lengths and prompts.")
@click.option("--repeat", default=3, show_default=True, type=click.IntRange(min=1), help="Runs to measure.")
@click.option(
    "--warm-up", default=1, show_default=True, type=click.IntRange(min=0), help="Runs before measuring."
)
@output_options("a line for each run")
@engine_options
def command(
    workload: str,
    seed: int,
    repeat: int,
    warm_up: int,
    json_file: Path | None,
    csv_file: Path | None,
    **engine: object,
) -> None:
    """Measure how many tokens per second an engine generates, without a server; medians over the runs.

    Each run has different prompts, so that no run finds another's in the prefix cache.
    """
    config, jobs = offline_config(engine), find_workload(workload, seed).jobs
    from turnout.lab.jobs.prompts import Prompts
    from turnout.lab.offline import run_offline
    from turnout.runner.assembly import build_engine

    assembled = build_engine(config)
    click.echo("\n".join(assembled.ready.summary), err=True)
    rows: list[Figures] = []
    with freeze_garbage(), progress_bar(len(jobs) * (repeat + warm_up)) as done:
        for number in range(warm_up + repeat):
            prompts = Prompts(jobs, seed + number, assembled.ready.vocab_size)
            records = run_offline(assembled.engine, jobs, prompts, progress=done)
            rows += [_figures(records)] if number >= warm_up else []
    middle = rows[0] | {name: statistics.median(row[name] for row in rows) for name in MEASURED}
    click.echo("\n".join(_table(middle, rows)))
    about = {**run_facts(), "model": config.model, "workload": workload, "seed": seed, "warm_up": warm_up}
    write_json(json_file, {**about, **middle, "runs": rows})
    write_csv(csv_file, rows)


def _figures(records: Sequence[Record]) -> Figures:
    """Returns the figures under the names of ``vllm bench throughput``."""
    seconds = max(record.finished for record in records)
    output = sum(record.output_tokens for record in records)
    total = output + sum(record.prompt_tokens for record in records)
    return {
        "elapsed_time": seconds,
        "num_requests": len(records),
        "total_num_tokens": total,
        "total_output_tokens": output,
        "requests_per_second": len(records) / seconds,
        "tokens_per_second": total / seconds,
        "output_tokens_per_second": output / seconds,
    }


def _table(middle: Figures, rows: Sequence[Figures]) -> list[str]:
    def row(label: str, name: str) -> tuple[str, str, str]:
        values = [each[name] for each in rows]
        return label, f"{middle[name]:,.2f}", f"{min(values):,.2f} to {max(values):,.2f}"

    return tabular(
        [
            ("", "median", f"of {len(rows)} runs"),
            row("Elapsed time (s):", "elapsed_time"),
            row("Request throughput (req/s):", "requests_per_second"),
            row("Output token throughput (tok/s):", "output_tokens_per_second"),
            row("Total token throughput (tok/s):", "tokens_per_second"),
        ]
    )
