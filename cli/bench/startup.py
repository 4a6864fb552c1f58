"""``turnout bench startup``."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

import click

from turnout.cli.bench.output import output_options, progress_bar, run_facts, write_csv, write_json
from turnout.cli.terminal.table import tabular
from turnout.lab.startup import Startup, measure_startup

__all__ = ["command"]


@click.command(name="startup", context_settings={"ignore_unknown_options": True})
@click.option("--repeat", default=5, show_default=True, type=click.IntRange(min=1), help="Starts to measure.")
@click.option(
    "--timeout",
    "limit",
    default=600.0,
    show_default=True,
    type=click.FloatRange(min=0, min_open=True),
    help="Most seconds that a start may take.",
)
@output_options("a line for each start")
@click.argument("serve_arguments", metavar="[MODEL] [OPTIONS OF SERVE]...", nargs=-1, type=click.UNPROCESSED)
def command(
    repeat: int,
    limit: float,
    json_file: Path | None,
    csv_file: Path | None,
    serve_arguments: tuple[str, ...],
) -> None:
    """Measure the time from `turnout serve` to its first token, in a new process for each start.

    All other arguments are passed to `serve`, except for the port, which this command chooses.
    """
    starts: list[Startup] = []
    with progress_bar(repeat, "starts") as done:
        for _ in range(repeat):
            starts.append(measure_startup(serve_arguments, limit))
            done(None)
    click.echo("\n".join(_table(starts)))
    medians = {f"median_{name}_s": statistics.median(values) for name, values in _columns(starts).items()}
    lists = {f"{name}_s": values for name, values in _columns(starts).items()}
    write_json(json_file, {**run_facts(), "arguments": serve_arguments, **medians, **lists})
    write_csv(csv_file, [{f"{name}_s": value for name, value in asdict(start).items()} for start in starts])


def _columns(starts: Sequence[Startup]) -> dict[str, list[float]]:
    return {
        "ready": [start.ready for start in starts],
        "first_token": [start.first_token for start in starts],
    }


def _table(starts: Sequence[Startup]) -> list[str]:
    rows = [["seconds to", "median", "least", "most", "first"]]
    for name, values in _columns(starts).items():
        figures = (statistics.median(values), min(values), max(values), values[0])
        rows.append([name.replace("_", " "), *(f"{value:.2f}" for value in figures)])
    return tabular(rows)
