"""The figures and pictures of compare.md and statistics.md in docs: ``python bench/comparison/page.py``.

What is simulated comes out the same on every machine; ``--only live`` measures one section on this one.
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
from turnout.lab.compare.runs.live import LiveRuns
from turnout.lab.compare.runs.simulated import SimulatedRuns
from turnout.lab.compare.statistics.verdicts import amount, percent, within
from turnout.lab.results.markdown import markdown_table, write_marked
from turnout.lab.simulation import preset

COST = "h100-7b"
PARTS = ("bursty", "kv", "intervals", "paging")


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
KV = Example(
    "kv",
    ("slabs:kv=contiguous", "pages:kv=paged"),
    EngineConfig(kv_memory="8GiB"),
    "poisson:rate=14,requests=250,longest=2048",
    {"timelines": plots.timelines},
)
LIVE = Example(
    "live",
    ("one", "again", "alone:max-num-seqs=1"),
    EngineConfig(kv_memory="256MiB"),
    "closed:concurrency=4,requests=24,prompt=40,output=24",
    {},
)


@click.command()
@click.option("--docs", type=click.Path(path_type=Path), default=Path("docs"), show_default=True)
@click.option("--only", "parts", multiple=True, type=click.Choice([*PARTS, "live"]), default=PARTS)
def main(docs: Path, parts: tuple[str, ...]) -> None:
    guide, statistics = docs / "how-to" / "compare.md", docs / "explanation" / "statistics.md"
    for example in (BURSTY, KV):
        if example.name in parts:
            spec = example.spec(COST)
            write(guide, example, Experiment(spec, SimulatedRuns(spec, preset(COST))))
    if "intervals" in parts:
        write_marked(statistics, "intervals", intervals.table())
        write_marked(statistics, "looks", intervals.looks_table())
    if "paging" in parts:
        write_marked(statistics, "paging", paging.table())
    if LIVE.name in parts:
        spec = LIVE.spec("")
        write(statistics, LIVE, Experiment(spec, LiveRuns(spec)))


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
    rows = map(_cells, comparison.rows[arm])
    return "\n".join([*notes, markdown_table(("metric", base, arm, "change", "verdict"), rows, "lrrrl")])


def _cells(row: MetricRow) -> tuple[str, ...]:
    change = f"{percent(row.difference.change)} {within(row.difference)}" if row.difference else ""
    told = f"**{row.direction}**" if row.direction else row.verdict
    return row.metric.title, amount(row.base), f"{amount(row.other)} {row.metric.unit}", change, told


def _on_white(svg: str) -> str:
    """A document's page may be dark."""
    head, _, rest = svg.partition(">")
    return f'{head}><rect width="100%" height="100%" fill="white"/>{rest}'


if __name__ == "__main__":
    main()
