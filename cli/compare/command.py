"""``turnout compare``."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import click

from turnout.cli.compare.progress import watching
from turnout.cli.compare.text import as_text
from turnout.cli.options.cost_model import find_cost_model
from turnout.cli.options.engine_options import config_option, configs_of
from turnout.cli.options.flags import config_options
from turnout.cli.options.output_file import OutputFile, writing
from turnout.cli.options.text_file import utf8
from turnout.cli.options.workload import find_workload
from turnout.cli.terminal.errors import INTERRUPTED
from turnout.config import EngineConfig
from turnout.core.errors import ConfigError, TurnoutError
from turnout.lab.arms import Arm, check_arms, parse_arms
from turnout.lab.compare.comparison import Comparison
from turnout.lab.compare.experiment import Experiment
from turnout.lab.compare.fail_on import ChangeLimit, failures, parse_limits
from turnout.lab.compare.report.as_json import as_json
from turnout.lab.compare.report.report import as_html, check_plots
from turnout.lab.compare.runs.experiment_spec import ExperimentSpec
from turnout.lab.compare.runs.live import LiveRuns, measure_quality_live
from turnout.lab.compare.runs.protocol import Incomparable, QualityResult
from turnout.lab.compare.runs.quality import QualityText, arms_to_measure, held_out
from turnout.lab.compare.runs.simulated import SimulatedRuns
from turnout.lab.compare.statistics.metrics import metrics
from turnout.lab.results.goodput import Goodput
from turnout.lab.simulation.cost import CostModel
from turnout.lab.simulation.presets import PRESETS
from turnout.lab.simulation.runs.arms import check_simulated_arms, without_effect

__all__ = ["command"]

BEYOND = 3
"""The exit code if an arm exceeds a limit of ``--fail-on``."""

_FILE = OutputFile()


@dataclass(frozen=True)
class CompareOptions:
    """The options that describe the experiment, by their names."""

    workload: str
    repeats: int
    seed: int
    warm_up: int
    temperature: float | None
    goodput: str | None
    see: float
    quality_text: Path | None
    quality_tokens: int
    traces: Path | None

    def spec(self, arms: Sequence[Arm], cost: CostModel | None) -> ExperimentSpec:
        """Returns the experiment that the options describe.

        cost: the cost model to simulate the arms with; None: the arms serve, and their quality is measured.
        """
        measured = self.quality_text is not None or cost is None
        return ExperimentSpec(
            arms=tuple(arms),
            workload=self.workload,
            repeats=self.repeats,
            seed=self.seed,
            warm_up=self.warm_up,
            temperature=self.temperature,
            goodput=Goodput.parse(self.goodput) if self.goodput else None,
            see=self.see / 100,
            simulated=cost.name if cost else "",
            text=_text(arms, self.quality_text, self.quality_tokens) if measured else None,
            traces=self.traces,
        )


@dataclass(frozen=True)
class Outputs:
    """Where results go beside the terminal."""

    json: Path | None
    report: Path | None

    def check(self) -> None:
        """Hours before they are needed. Raises ConfigError."""
        if self.report is not None:
            check_plots()

    def write(self, comparison: Comparison) -> None:
        click.echo(as_text(comparison))
        if self.json is not None:
            with writing(self.json):
                self.json.write_bytes(as_json(comparison))
        if self.report is not None and comparison.repeats:
            with writing(self.report):
                page = as_html(comparison, self.report.absolute().parent)
                self.report.write_text(page, encoding="utf-8")
            click.echo(f"report: {self.report}", err=True)


@click.command(name="compare")
@click.option(
    "--arm",
    "arms",
    multiple=True,
    required=True,
    metavar="NAME:field=value,…",
    help="A configuration that changes these options; give two or more: each is compared with the first.",
)
@click.option(
    "--workload",
    required=True,
    metavar="SPEC",
    help="Trace, or generator with its options; see `turnout bench workloads`.",
)
@click.option("--repeat", "repeats", type=int, default=5, show_default=True, help="Runs of each arm.")
@click.option(
    "--simulate",
    "cost_model",
    metavar="NAME|FILE",
    help="Simulate instead, with a cost model: a file that `turnout profile` wrote, or an estimate: "
    f"{', '.join(PRESETS)}; behind these, -tp8, -pp2 and -ep divide the model over GPUs.",
)
@click.option(
    "--seed",
    type=int,
    default=0,
    show_default=True,
    help="Seed of the first repeat's workload and prompts; each repeat has its own, which all arms share.",
)
@click.option(
    "--warm-up",
    type=int,
    default=8,
    show_default=True,
    help="Requests to serve before each run, without measuring them.",
)
@click.option(
    "--temperature",
    type=float,
    help="Temperature of all requests; default: 0, or that of --decoding if it is given.",
)
@click.option(
    "--goodput",
    metavar="METRIC:MS,…",
    help="Limits by which to count good requests, such as ttft:200,tpot:50.",
)
@click.option(
    "--see",
    type=float,
    default=2.0,
    show_default=True,
    metavar="PERCENT",
    help="Smallest change that matters; the report says how many repeats would show it.",
)
@click.option(
    "--quality-text",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Text on which to compare the predictions of arms that differ in model, quantization or dtype; "
    "default: Python code that the embedded model was not trained on.",
)
@click.option(
    "--quality-tokens",
    type=click.IntRange(0),
    default=4096,
    show_default=True,
    help="Most tokens of that text to read; 0: compare no predictions.",
)
@click.option("--json", "json_file", type=_FILE, metavar="FILE", help="File to write all measurements to.")
@click.option(
    "--report", "report_file", type=_FILE, metavar="FILE", help="File to write a page with plots to."
)
@click.option(
    "--traces",
    type=click.Path(file_okay=False, writable=True, path_type=Path),
    metavar="FOLDER",
    help="Folder to keep a trace of each run in, for `turnout view`; the report links to them.",
)
@click.option(
    "--fail-on",
    metavar="METRIC:±N%,…",
    help=f"Exit with code {BEYOND} if an arm is shown to exceed a limit, such as p99_ttft:+5%.",
)
@config_option
@config_options(EngineConfig)
@click.pass_context
def command(
    ctx: click.Context,
    /,
    *,
    arms: tuple[str, ...],
    cost_model: str | None,
    json_file: Path | None,
    report_file: Path | None,
    fail_on: str | None,
    **options: Any,
) -> None:
    """Serve a workload with each arm repeatedly, and report what differs and with which confidence.

    Each run has a new engine in its own process. The arms take turns on the same requests.
    """
    settings = CompareOptions(**{field.name: options.pop(field.name) for field in fields(CompareOptions)})
    common, _ = configs_of(options)
    cost = find_cost_model(cost_model) if cost_model else None
    spec = settings.spec(parse_arms(arms, common), cost)
    check_arms(spec.arms)
    if cost is not None:
        check_simulated_arms(spec.arms)
        if told := without_effect(common):
            click.echo(f"WARNING: {told}.", err=True)
    limits = _limits(fail_on, spec)
    find_workload(spec.workload, spec.seed)
    outputs = Outputs(json_file, report_file)
    outputs.check()
    if spec.traces is not None:
        with writing(spec.traces):
            spec.traces.mkdir(parents=True, exist_ok=True)
    maker = SimulatedRuns(spec, cost) if cost else LiveRuns(spec)
    comparison = _measured(ctx, Experiment(spec, maker), outputs)
    beyond = list(failures(limits, comparison)) if limits else []
    for line in beyond:
        click.echo(f"failed: {line}", err=True)
    ctx.exit(BEYOND if beyond else 0)


def _text(arms: Sequence[Arm], file: Path | None, tokens: int) -> QualityText | None:
    """None where no arm can differ in quality, or none is to be measured."""
    if not arms_to_measure(arms):
        if file is not None:
            raise ConfigError(
                "--quality-text has no arm to judge: the arms have the same model, overrides, quantization, "
                "dtype, device and KV dtype"
            )
        return None
    if not tokens:
        return None
    return held_out(tokens) if file is None else QualityText(file.name, utf8(file), tokens)


def _measured(ctx: click.Context, experiment: Experiment, outputs: Outputs) -> Comparison:
    """Whatever ends it early, what has been measured is written."""
    try:
        experiment.make(watching(experiment.spec, sys.stderr.isatty()))
        experiment.measure_quality(_quality)
    except KeyboardInterrupt:
        click.echo("\ninterrupted; this is what has been measured so far:", err=True)
        outputs.write(experiment.comparison())
        ctx.exit(INTERRUPTED)
    except TurnoutError:
        if experiment.runs:
            outputs.write(experiment.comparison())
        raise
    comparison = experiment.comparison()
    outputs.write(comparison)
    return comparison


def _quality(base: Arm, arm: Arm, text: QualityText) -> QualityResult | Incomparable:
    click.echo(f"quality of {arm.name} beside {base.name}", err=True)
    return measure_quality_live(base, arm, text)


def _limits(text: str | None, spec: ExperimentSpec) -> Sequence[ChangeLimit]:
    if text is None:
        return ()
    if spec.repeats < 2:
        raise ConfigError("--fail-on needs --repeat 2 or more: one repeat cannot tell a change from chance")
    limits = parse_limits(text, metrics(goodput=True, clients=True))
    measured = {metric.name for metric in metrics(goodput=spec.goodput is not None, clients=True)}
    for limit in limits:
        if limit.metric not in measured:
            raise ConfigError(f"--fail-on {limit} needs --goodput, the limits by which requests are good")
    return limits
