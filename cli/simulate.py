"""``turnout simulate``."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any, NamedTuple

import click
from tqdm import tqdm

from turnout.cli.options.cost_model import find_cost_model
from turnout.cli.options.engine_options import config_option, configs_of
from turnout.cli.options.flags import config_options
from turnout.cli.options.output_file import OutputFile, writing
from turnout.cli.options.workload import find_workload
from turnout.cli.terminal.figure import NONE, figure
from turnout.cli.terminal.summary_table import TITLES
from turnout.cli.terminal.table import aligned
from turnout.config import EngineConfig
from turnout.lab.arms import Arm, check_arms, parse_arms
from turnout.lab.jobs.job import Workload
from turnout.lab.results.failures import tell_failures, tell_policy_faults
from turnout.lab.results.goodput import Goodput
from turnout.lab.simulation.cost import CostModel
from turnout.lab.simulation.presets import PRESETS
from turnout.lab.simulation.recording import Recording, write_trace
from turnout.lab.simulation.runs.arms import check_simulated_arms, without_effect
from turnout.lab.simulation.runs.result import SimulationResult, simulate
from turnout.lab.simulation.simulate import Simulation

__all__ = ["command"]


@click.command(name="simulate")
@click.option(
    "--arm",
    "arms",
    multiple=True,
    metavar="NAME:option=value,…",
    help="A configuration that changes these options; several are simulated in turn on the same workload. "
    "Default: one configuration with the options as given.",
)
@click.option(
    "--workload",
    required=True,
    metavar="SPEC",
    help="Trace, or generator with its options; see `turnout bench workloads`.",
)
@click.option(
    "--cost-model",
    required=True,
    metavar="NAME|FILE",
    help=f"Cost model of steps: a file that `turnout profile` wrote, or an estimate: {', '.join(PRESETS)}; "
    "behind these, -tp8, -pp2 and -ep divide the model over GPUs.",
)
@click.option("--replicas", type=click.IntRange(1), default=1, show_default=True, help="Engines to simulate.")
@click.option(
    "--router",
    default="round-robin",
    show_default=True,
    metavar="TEXT",
    help="Policy that chooses the replica for each request, as NAME or NAME:option=value,….",
)
@click.option("--seed", type=int, default=0, show_default=True, help="Seed of the workload and its prompts.")
@click.option(
    "--goodput",
    metavar="METRIC:MS,…",
    help="Limits by which to count good requests, such as ttft:200,tpot:50.",
)
@click.option(
    "--workers",
    type=click.IntRange(1),
    default=os.cpu_count() or 1,
    show_default="one for each CPU",
    help="Most processes to use for replicas.",
)
@click.option(
    "--fast/--stepwise",
    "fast_forward",
    default=True,
    show_default=True,
    help="Skip the work of a step where the results stay the same, or take each step in full.",
)
@click.option(
    "--json",
    "json_file",
    type=OutputFile(allow_dash=True),
    help="File to write all figures to; -: print them.",
)
@click.option(
    "--trace",
    "trace_file",
    type=OutputFile(),
    help="File to record all steps and requests to, for `turnout view`; takes each step in full.",
)
@config_option
@config_options(EngineConfig)
def command(*, arms: tuple[str, ...], json_file: Path | None, trace_file: Path | None, **flags: Any) -> None:
    """Serve a workload on a virtual clock: the same engine, with a cost model of its steps.

    The model, device, dtype and quantization are the cost model's; all else is as in `turnout serve`.
    """
    scene = _Scene(**{name: flags.pop(name) for name in _Scene._fields})
    common, _ = configs_of(flags)
    chosen = parse_arms(arms or ("default",), common)
    check_arms(chosen)
    check_simulated_arms(chosen)
    if told := without_effect(common):
        click.echo(f"WARNING: {told}.", err=True)
    workload, cost = find_workload(scene.workload, scene.seed), find_cost_model(scene.cost_model)
    recordings = [_recording(arm, len(chosen)) if trace_file else None for arm in chosen]
    outcomes = [
        _simulated(arm, scene, workload, cost, recording)
        for arm, recording in zip(chosen, recordings, strict=True)
    ]
    if trace_file is not None:
        write_trace(trace_file, [recording for recording in recordings if recording is not None])
    if json_file is not None:
        _write(json_file, json.dumps(_figures(chosen, outcomes, workload, cost), indent=2) + "\n")
    for arm, outcome in zip(chosen, outcomes, strict=True):
        if outcome.first_failed is not None:
            failed = outcome.summary.failed
            told = tell_failures(arm.name, failed, len(workload.jobs), outcome.first_failed)
            click.echo(f"WARNING: {told}.", err=True)
        if faults := outcome.totals.policy_faults:
            click.echo(f"WARNING: {tell_policy_faults(arm.name, faults)}.", err=True)
    if str(json_file) != "-":
        click.echo("\n".join([*_heading(scene, workload, cost, chosen), "", *_table(chosen, outcomes)]))


def _write(file: Path, text: str) -> None:
    if str(file) == "-":
        click.echo(text, nl=False)
        return
    with writing(file):
        file.write_text(text, encoding="utf-8")


class _Scene(NamedTuple):
    """The options that all arms share."""

    workload: str
    cost_model: str
    replicas: int
    router: str
    seed: int
    goodput: str | None
    workers: int
    fast_forward: bool


def _recording(arm: Arm, arms: int) -> Recording:
    return Recording(arm.name if arms > 1 else "", str(arm.config.scheduler))


def _simulated(
    arm: Arm, scene: _Scene, workload: Workload, cost: CostModel, recording: Recording | None
) -> SimulationResult:
    simulation = Simulation(
        arm.config, workload, cost, scene.seed, scene.replicas, scene.router, scene.fast_forward
    )
    simulation.recording = recording
    goodput = Goodput.parse(scene.goodput) if scene.goodput else None
    with tqdm(total=len(workload.jobs), desc=arm.name, unit="req", disable=not sys.stderr.isatty()) as bar:

        def progress(ended: int) -> None:
            bar.update(ended)

        return simulate(simulation, workers=scene.workers, goodput=goodput, progress=progress)


def _figures(
    arms: tuple[Arm, ...], outcomes: list[SimulationResult], workload: Workload, cost: CostModel
) -> dict[str, Any]:
    return {
        "workload": workload.name,
        "requests": len(workload.jobs),
        "cost_model": {"name": cost.name, "estimate": cost.estimate, "note": cost.note},
        "arms": {
            arm.name: {
                "changes": dict(arm.changes),
                **outcome.summary.as_json(),
                **vars(outcome.totals),
            }
            for arm, outcome in zip(arms, outcomes, strict=True)
        },
    }


# ------------------------------------------------------------------ for people


def _heading(scene: _Scene, workload: Workload, cost: CostModel, arms: tuple[Arm, ...]) -> list[str]:
    fleet = f", {scene.replicas} replicas, router {scene.router}" if scene.replicas > 1 else ""
    origin = f"{'estimated' if cost.estimate else 'measured'}: {cost.note}" if cost.note else "measured"
    return [
        f"simulated: {workload.name}, {len(workload.jobs):,} requests{fleet}",
        f"cost model {cost.name} ({origin})",
        *(f"  {arm}" for arm in arms if arm.changes),
    ]


def _table(arms: tuple[Arm, ...], outcomes: list[SimulationResult]) -> list[str]:
    columns = [_column(outcome) for outcome in outcomes]
    rows = [["", *(arm.name for arm in arms)]]
    rows += [[name, *(column[name] for column in columns)] for name in columns[0]]
    return aligned(rows)


_SHOWN = {**TITLES, "duration": "Duration (s)"}


def _column(outcome: SimulationResult) -> dict[str, str]:
    summary, totals = outcome.summary, outcome.totals
    column = {
        title: figure(getattr(summary, name))
        for name, title in _SHOWN.items()
        if getattr(summary, name) is not None
    }
    for name, latency in summary.latencies.items():
        label = "E2EL" if name == "e2el" else name.upper()
        figures = {"Mean": latency.mean, "Median": latency.median}
        figures |= {f"P{rank:g}": value for rank, value in latency.percentiles.items()}
        for kind, value in figures.items():
            column[f"{kind} {label} (ms)"] = figure(value) if latency.count else NONE
    column["Preemptions"] = figure(totals.preemptions)
    column["Prefix cache hits"] = f"{100 * totals.hits / max(1, totals.lookups):.1f}%"
    return column
