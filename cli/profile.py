"""``turnout profile``."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import NoReturn

import click
from tqdm import tqdm

from turnout.cli.options.engine_options import configs_of, engine_options
from turnout.cli.options.output_file import OutputFile, writing
from turnout.cli.terminal.table import aligned
from turnout.lab.simulation.cost import CostModel

__all__ = ["command"]

CLOCKS = {"wall": time.perf_counter, "thread": time.thread_time}


@click.command(name="profile")
@click.option("--out", "file", type=OutputFile(), required=True, help="File to write the cost model to.")
@click.option(
    "--seconds", type=click.FloatRange(1), default=60.0, show_default=True, help="Seconds to measure for."
)
@click.option("--name", default="", metavar="TEXT", help="Name of the cost model; default: the model's name.")
@click.option(
    "--clock",
    type=click.Choice(tuple(CLOCKS)),
    default="wall",
    show_default=True,
    help="thread: the CPU time of the engine's thread alone, for a busy machine without a GPU; set "
    "OMP_NUM_THREADS=1.",
)
@engine_options
def command(*, file: Path, seconds: float, name: str, clock: str, **flags: object) -> None:
    """Measure how long steps of MODEL take on this machine, and fit the cost model that `simulate` reads."""
    config, _ = configs_of(flags)
    from turnout.lab.simulation.profiling.profile import profile  # only now: it waits for torch

    with tqdm(total=100, desc="measuring", unit="%", disable=not sys.stderr.isatty()) as bar:
        cost = profile(
            config,
            seconds=seconds,
            name=name,
            clock=CLOCKS[clock],
            progress=lambda share: _show(bar, share),
        )
    with writing(file):
        cost.save(file)
    click.echo(describe(cost))
    click.echo(f"written to {file}; use it with: turnout simulate --cost-model {file} …")


def _show(bar: tqdm[NoReturn], share: float) -> None:
    bar.update(int(100 * share) - bar.n)


def describe(cost: CostModel) -> str:
    """Describes the coefficients and the error of the fit."""
    seconds, quality = cost.seconds, cost.fit
    rows = [(name, f"{1e6 * value:,.4g} us", meaning) for name, value, meaning in seconds.terms() if value]
    lines = [f"cost model {cost.name}", *aligned(rows, indent="  ")]
    if quality is not None:
        lines.append(
            f"fitted to {quality.steps} steps; error of a step: mean {quality.mean:.1%}, 90th percentile "
            f"{quality.p90:.1%}, worst {quality.worst:.1%}; of all together {quality.bias:+.1%}"
        )
    return "\n".join(lines)
