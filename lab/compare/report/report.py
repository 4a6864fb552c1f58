"""Writes a comparison as one self-contained HTML page."""

from __future__ import annotations

import os
from collections.abc import Mapping
from importlib.resources import files
from itertools import cycle
from pathlib import Path
from typing import Any
from urllib.parse import quote

from jinja2 import Environment, StrictUndefined
from markupsafe import Markup

from turnout.lab.compare.comparison import Comparison
from turnout.lab.compare.report import plots
from turnout.lab.compare.report.svg import COLOURS, check_plots
from turnout.lab.compare.runs.quality import HEADINGS, quality_rows
from turnout.lab.compare.runs.run import Run
from turnout.lab.compare.statistics.verdicts import amount, change, within

__all__ = ["as_html", "check_plots"]


def as_html(comparison: Comparison, folder: Path | None = None) -> str:
    """The page of a comparison with a complete repeat. Raises ConfigError without the plotting library.

    folder: where the page will be, for links to traces.
    """
    check_plots()
    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True)
    environment.filters |= {"amount": amount, "change": change, "within": within}
    source = files(__package__).joinpath("report.html.jinja").read_text(encoding="utf-8")
    return environment.from_string(source).render(_values(comparison, folder))


def _values(comparison: Comparison, folder: Path | None) -> dict[str, Any]:
    spec, first = comparison.spec, comparison.repeats[0]
    base = spec.arms[0].name
    simulated = f"simulated on the cost model {spec.simulated}"
    clients = plots.clients(comparison)
    return {
        "title": " · ".join(arm.name for arm in spec.arms),
        "spec": spec,
        "repeats": len(comparison.repeats),
        "requests": len(first[base].records),
        "how": simulated if spec.simulated else "each run in a fresh process",
        "findings": comparison.findings,
        "arms": list(zip(spec.arms, cycle(COLOURS), strict=False)),
        "base": base,
        "blocks": [_block(comparison, arm) for arm in comparison.rows],
        "quality": _quality(comparison),
        "distributions": Markup(plots.distributions(comparison)),
        "timelines": Markup(plots.timelines(comparison)),
        "throughput": Markup(plots.throughput(comparison)),
        "clients": Markup(clients) if clients else None,
        "preemptions": [
            (arm.name, sum(repeat[arm.name].preemptions for repeat in comparison.repeats))
            for arm in spec.arms
        ],
        "see": f"{100 * spec.see:g}%",
        "traces": [_traces(repeat, folder) for repeat in comparison.repeats],
        "described": [(name, run.described) for name, run in first.items() if run.described],
    }


def _quality(comparison: Comparison) -> dict[str, Any] | None:
    spec, found = comparison.spec, comparison.quality
    if spec.text is None or not found:
        return None
    tokens = next(iter(found.values())).own.tokens
    return {
        "text": f"{tokens:,} tokens of {spec.text.name}",
        "headings": HEADINGS,
        "rows": quality_rows(spec.arms, found),
    }


def _traces(runs: Mapping[str, Run], folder: Path | None) -> list[tuple[str, str, str]]:
    """Of each run with a trace the arm, the link from the page, and the file."""
    kept = ((arm, run.trace) for arm, run in runs.items() if run.trace)
    return [(arm, quote(Path(os.path.relpath(file, folder)).as_posix()), file) for arm, file in kept]


def _block(comparison: Comparison, arm: str) -> dict[str, Any]:
    rows = comparison.rows[arm]
    return {
        "arm": arm,
        "rows": rows,
        "by_difference": any(row.difference and row.difference.means for row in rows),
        "declared": [row for row in rows if row.difference and row.difference.declared],
        "plot": Markup(plots.changes(comparison, arm)),
    }
