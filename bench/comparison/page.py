"""The figures and pictures of compare.md and statistics.md in docs: ``python bench/comparison/page.py``.

All is simulated, so it comes out the same on every machine.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import click

from turnout.bench.comparison import intervals
from turnout.bench.kv import paging
from turnout.config import EngineConfig
from turnout.lab.arms import parse_arms
from turnout.lab.compare.comparison import Comparison, MetricRow
from turnout.lab.compare.experiment import Experiment
from turnout.lab.compare.report import plots
from turnout.lab.compare.runs.experiment_spec import ExperimentSpec
from turnout.lab.compare.runs.simulated import SimulatedRuns
from turnout.lab.compare.statistics.verdicts import amount, change, within
from turnout.lab.results.markdown import markdown_table, write_marked
from turnout.lab.simulation import preset

COST = "h100-7b"
PARTS = ("bursty", "intervals", "paging")
SHOWN = {"request_throughput", "mean_ttft", "p99_ttft", "mean_tpot", "mean_e2el"}
"""Metrics in the tables of the pages; the report has all."""


@dataclass(frozen=True)
class Example:
    name: str
    arms: tuple[str, ...]
    common: EngineConfig
    workload: str
    pictures: dict[str, Callable[[Comparison], str]]
    repeats: int = 5

    def spec(self, simulated: str) -> ExperimentSpec:
        return ExperimentSpec(
            parse_arms(self.arms, self.common), self.workload, repeats=self.repeats, simulated=simulated
        )


BURSTY = Example(
    "bursty",
    ("fcfs", "ljf:scheduler=ljf", "sjf:scheduler=sjf"),
    EngineConfig(max_num_seqs=32),
    "gamma:rate=12,burstiness=0.25,requests=250,longest=2048",
    {
        "changes": lambda comparison: plots.changes(comparison, "sjf"),
        "distributions": plots.distributions,
        "timelines": plots.timelines,
    },
)


@click.command()
@click.option("--docs", type=click.Path(path_type=Path), default=Path("docs"), show_default=True)
@click.option("--only", "parts", multiple=True, type=click.Choice(PARTS), default=PARTS)
def main(docs: Path, parts: tuple[str, ...]) -> None:
    guide, statistics = docs / "how-to" / "compare.md", docs / "explanation" / "statistics.md"
    if BURSTY.name in parts:
        spec = BURSTY.spec(COST)
        write(guide, BURSTY, Experiment(spec, SimulatedRuns(spec, preset(COST))))
    if "intervals" in parts:
        write_marked(statistics, "intervals", intervals.table())
        write_marked(statistics, "looks", intervals.looks_table())
    if "paging" in parts:
        write_marked(statistics, "paging", paging.table())


def write(doc: Path, example: Example, experiment: Experiment) -> None:
    experiment.make(lambda turn: lambda done, total: None)
    comparison = experiment.comparison()
    write_marked(doc, example.name, "\n\n".join(table(comparison, arm) for arm in comparison.rows))
    for name, draw in example.pictures.items():
        picture = doc.parent.parent / "images" / f"comparing-{example.name}-{name}.svg"
        picture.write_text(_on_white(draw(comparison)), encoding="utf-8")


def table(comparison: Comparison, arm: str) -> str:
    base = comparison.spec.arms[0].name
    notes = [f"> {finding.text}." for finding in comparison.findings if finding.serious]
    rows = [_cells(row) for row in comparison.rows[arm] if row.metric.name in SHOWN]
    return "\n".join([*notes, markdown_table(("metric", base, arm, "change", "verdict"), rows, "lrrrl")])


def _cells(row: MetricRow) -> tuple[str, ...]:
    changed = f"{change(row.difference)} {within(row.difference)}" if row.difference else ""
    told = f"**{row.direction}**" if row.direction else row.verdict
    return row.metric.title, amount(row.base), f"{amount(row.other)} {row.metric.unit}", changed, told


def _on_white(svg: str) -> str:
    """A document's page may be dark."""
    head, _, rest = svg.partition(">")
    return f'{head}><rect width="100%" height="100%" fill="white"/>{rest}'


if __name__ == "__main__":
    main()
