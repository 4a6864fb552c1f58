"""The text of a comparison, for the terminal."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from turnout.cli.terminal.table import aligned
from turnout.lab.compare.comparison import Comparison, MetricRow
from turnout.lab.compare.runs.quality import HEADINGS, quality_rows
from turnout.lab.compare.statistics.verdicts import amount, change, within

__all__ = ["as_text"]


def as_text(comparison: Comparison) -> str:
    """Returns the findings, then for each arm a table with a verdict for each metric."""
    lines = [
        f"{'WARNING' if finding.serious else 'note'}: {finding.text}." for finding in comparison.findings
    ]
    if not comparison.repeats:
        return "\n".join([*lines, "no repeat is complete: there is nothing to compare."])
    for arm, rows in comparison.rows.items():
        lines += ["", *_table(comparison, arm, rows)]
    lines += _quality(comparison)
    return "\n".join([*lines, "", *_footnotes(comparison)]).lstrip("\n")


def _table(comparison: Comparison, arm: str, rows: Sequence[MetricRow]) -> list[str]:
    base = comparison.spec.arms[0].name
    head = ("", "", base, arm, "change", "", "")
    return aligned([head, *(_cells(row) for row in rows)])


def _cells(row: MetricRow) -> tuple[str, ...]:
    metric, difference = row.metric, row.difference
    told = ("", "") if difference is None else (change(difference), within(difference))
    return metric.title, metric.unit, amount(row.base), amount(row.other), *told, row.verdict


def _quality(comparison: Comparison) -> list[str]:
    spec, found = comparison.spec, comparison.quality
    if spec.text is None or not found:
        return []
    tokens = next(iter(found.values())).own.tokens
    title = f"quality, on {tokens:,} tokens of {spec.text.name}:"
    return ["", title, *aligned([("", *HEADINGS), *quality_rows(spec.arms, found)])]


def _footnotes(comparison: Comparison) -> Iterator[str]:
    spec, count = comparison.spec, len(comparison.repeats)
    how = f"simulated on {spec.simulated}" if spec.simulated else "each run in a fresh process"
    made = f"{count} of {spec.repeats} repeats" if count < spec.repeats else f"{count} repeats"
    yield f"{made} of {spec.workload}, {how}."
    rows = [row for each in comparison.rows.values() for row in each]
    if any(row.difference and row.difference.means for row in rows):
        yield "“of the mean”, “from 0”: in some repeat one arm alone has a figure of 0, which has no ratio."
        yield "Such a metric is judged by the differences between figures, as shares of the first arm's mean."
    yield "Changes are geometric means over the repeats. Of the differences that are declared, at most 5% are"
    yield "expected to be chance; brackets are intervals to match."
