"""``turnout bench workloads``: lists the generators and their options, and sums up a workload."""

from __future__ import annotations

import inspect
import re
from pathlib import Path

import click
import numpy as np

from turnout.cli.options.output_file import OutputFile, writing
from turnout.cli.options.workload import find_workload
from turnout.cli.terminal.figure import figure
from turnout.cli.terminal.table import aligned, tabular
from turnout.core.registry.options import Option
from turnout.lab.jobs.job import Workload
from turnout.lab.traces.turnout_format import write_workload
from turnout.lab.workloads.generators import Generator
from turnout.lab.workloads.lengths import FORMS
from turnout.lab.workloads.source import SOURCES, source_options

__all__ = ["command"]


@click.command(name="workloads")
@click.argument("workload", required=False)
@click.option("--seed", default=0, show_default=True, help="Seed of arrivals and lengths.")
@click.option(
    "--write",
    "file",
    type=OutputFile(),
    metavar="FILE",
    help="File to write the requests to, in Turnout's own format.",
)
def command(workload: str | None, seed: int, file: Path | None) -> None:
    """List what --workload takes, describe a generator by its name, or sum up the requests of a WORKLOAD."""
    if workload is None:
        click.echo("\n".join(aligned([(name, _about(name)) for name in SOURCES])))
    elif workload in SOURCES and file is None:
        click.echo(_described(workload))
    else:
        loaded = find_workload(workload, seed)
        if file is not None:
            with writing(file):
                write_workload(loaded, file)
        click.echo("\n".join(_facts(loaded)))


# ------------------------------------------------------------------ generators


def _about(name: str) -> str:
    return inspect.cleandoc(SOURCES[name].__doc__ or "").partition("\n")[0]


def _described(name: str) -> str:
    rows = [(option.name, _type(option), _default(option), option.help) for option in source_options(name)]
    lines = [f"{name}: {_about(name)}", "", *aligned(rows, indent="  ")]
    if issubclass(SOURCES[name], Generator):
        lines += ["", f"LENGTHS is {FORMS}."]
    return "\n".join(lines)


def _type(option: Option) -> str:
    if "Lengths" in option.type:
        return "LENGTHS"
    return re.sub(r"[\w.]+\.", "", option.type).removesuffix(" | None").upper()


def _default(option: Option) -> str:
    if not option.default:
        return "must be given"
    return "" if option.default == "null" else f"default {option.default.strip(chr(34))}"


# ------------------------------------------------------------------ one workload


def _facts(workload: Workload) -> list[str]:
    jobs = workload.jobs
    last = f"closed loop of {workload.concurrency}" if workload.concurrency else figure(jobs[-1].at)
    rows = [
        ("Requests:", f"{len(jobs):,}"),
        ("Sessions:", f"{len({job.session for job in jobs if job.session}):,}"),
        ("Clients:", f"{len({job.client for job in jobs if job.client}):,}"),
        ("Last arrival (s):", last),
    ]
    lengths = [["tokens", "total", "mean", "median", "p99", "most"]]
    for name in ("prompt", "output"):
        values = np.array([getattr(job, name) for job in jobs])
        figures = (values.sum(), values.mean(), np.median(values), np.percentile(values, 99), values.max())
        lengths.append([name, *(f"{figure:,.0f}" for figure in figures)])
    return [*aligned(rows), "", *tabular(lengths)]
