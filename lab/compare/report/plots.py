"""The report's plots, each an ``<svg>``."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import cycle
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from turnout.lab.compare.comparison import Comparison, MetricRow
from turnout.lab.compare.report.svg import COLOURS, drawn
from turnout.lab.compare.runs.run import Run
from turnout.lab.compare.statistics.metrics import client_waits, duration
from turnout.lab.compare.statistics.statistics import changes as changes_in
from turnout.lab.results.record import Record

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["changes", "clients", "distributions", "throughput", "timelines"]

WIDTH = 9.6
"""Inches, of every figure."""
POINTS = 400
"""Of a line, at most."""
BINS = 80
WIDE = 8
"""A range whose end is more than so many times its beginning is drawn logarithmically."""

Floats = npt.NDArray[np.float64]


def changes(comparison: Comparison, arm: str) -> str:
    """Each metric's change, its interval, and the change in each repeat."""
    rows = [row for row in comparison.rows[arm] if row.difference and np.isfinite(row.difference.change)]
    names = [each.name for each in comparison.spec.arms]
    colour, base = COLOURS[names.index(arm) % len(COLOURS)], names[0]

    def draw(axes: list[Axes]) -> None:
        (ax,) = axes
        for place, row in enumerate(reversed(rows)):
            _change(ax, place, row, colour)
            each = _repeats(comparison, base, arm, row.metric.name)
            ax.plot(each, [place] * len(each), "o", color="#444444", mec="white", mew=0.5, ms=3.5, zorder=3.5)
        ax.set_xlim(_reach(comparison, base, arm, rows))
        ax.axvline(0, color="#555555", lw=1)
        ax.set_yticks(range(len(rows)), [row.metric.title for row in reversed(rows)])
        ax.set_xlabel(f"change from {base} to {arm}, in percent")
        ax.grid(axis="y", visible=False)

    return drawn(f"changes {arm}", (WIDTH, 0.9 + 0.3 * len(rows)), 1, 1, draw)


def _change(ax: Axes, place: int, row: MetricRow, colour: str) -> None:
    difference = row.difference
    assert difference is not None
    shade = colour if difference.declared else "#777777"
    if difference.repeats > 1:
        ends = [100 * difference.low, 100 * difference.high]
        ax.plot(ends, [place, place], color=shade, lw=2.2, solid_capstyle="butt", zorder=3)
    filled = shade if difference.declared else "white"
    ax.plot([100 * difference.change], [place], "D", color=shade, mfc=filled, ms=6, zorder=4)


def _reach(comparison: Comparison, base: str, arm: str, rows: Sequence[MetricRow]) -> tuple[float, float]:
    """All points and declared intervals; a vague interval would press everything else together."""
    shown = [-5.0, 5.0]
    for row in rows:
        assert row.difference is not None
        shown += [100 * row.difference.change, *_repeats(comparison, base, arm, row.metric.name)]
        if row.difference.declared:
            shown += [100 * row.difference.low, 100 * row.difference.high]
    margin = 0.05 * (max(shown) - min(shown))
    return min(shown) - margin, max(shown) + margin


def _repeats(comparison: Comparison, base: str, arm: str, metric: str) -> list[float]:
    """Each repeat's change, in percent."""
    return [
        100 * change
        for change in changes_in([(of[base][metric], of[arm][metric]) for of in comparison.figures])
    ]


# ------------------------------------------------------------------ distributions


def distributions(comparison: Comparison) -> str:
    """Of TTFT and TPOT, over all requests of all repeats."""
    kinds: list[tuple[str, Callable[[Record], float], Callable[[Record], bool]]] = [
        ("TTFT", lambda r: r.ttft, lambda r: True),
        ("TPOT", lambda r: r.tpot, lambda r: r.output_tokens > 1),
    ]

    def draw(axes: list[Axes]) -> None:
        for ax, (title, value, has) in zip(axes, kinds, strict=True):
            for arm, colour in _arms(comparison):
                values = [1000 * value(r) for r in _served(comparison, arm) if has(r)]
                if values:
                    ax.plot(*_cumulative(values), color=colour, label=arm)
            _readable_scale(ax)
            ax.set_ylim(0, 101)
            ax.set_xlabel(f"{title}, in milliseconds")
        axes[0].set_ylabel("requests that took no longer, in percent")
        axes[0].legend(loc="lower right")

    return drawn("distributions", (WIDTH, 3.4), 1, 2, draw)


def _cumulative(values: Sequence[float]) -> tuple[Floats, Floats]:
    shares = np.linspace(0, 100, min(POINTS, max(2, len(values))))
    return np.percentile(values, shares), shares


# ------------------------------------------------------------------ over time


def timelines(comparison: Comparison) -> str:
    """Running and waiting requests and KV use, in the first repeat."""
    kinds: list[tuple[str, Callable[[Run], list[float]]]] = [
        ("running requests", lambda run: [sample.running for sample in run.samples]),
        ("waiting requests", lambda run: [sample.waiting for sample in run.samples]),
        ("KV pool in use, in percent", lambda run: [100 * sample.kv_used for sample in run.samples]),
    ]

    def draw(axes: list[Axes]) -> None:
        for ax, (title, values) in zip(axes, kinds, strict=True):
            for arm, colour in _arms(comparison):
                run = comparison.repeats[0][arm]
                times = [sample.at for sample in run.samples]
                ax.plot(*_thinned(times, values(run)), color=colour, lw=1.2, label=arm)
            ax.set_title(title, loc="left")
            ax.set_ylim(0, max(1, ax.dataLim.y1 * 1.05))
        axes[-1].set_xlabel("seconds")
        _legend_above(axes[0])

    return drawn("timelines", (WIDTH, 6.0), 3, 1, draw)


def throughput(comparison: Comparison) -> str:
    """Output tokens a second, in the first repeat."""

    def draw(axes: list[Axes]) -> None:
        (ax,) = axes
        longest = max(duration(run.records) for run in comparison.repeats[0].values())
        edges = np.linspace(0, longest or 1.0, BINS + 1)
        for arm, colour in _arms(comparison):
            times = [t for record in comparison.repeats[0][arm].records for t in record.token_times]
            counts, _ = np.histogram(times, edges)
            ax.stairs(counts / (edges[1] - edges[0]), edges, color=colour, label=arm, lw=1.2)
        ax.set_xlabel("seconds")
        ax.set_ylabel("output tokens a second")
        ax.set_ylim(bottom=0)
        _legend_above(ax)

    return drawn("throughput", (WIDTH, 2.8), 1, 1, draw)


def _thinned(times: Sequence[float], values: Sequence[float]) -> tuple[Floats, Floats]:
    """At most `POINTS` points, each the mean of those it stands for."""
    if len(times) <= POINTS:
        return np.array(times), np.array(values)
    parts = zip(np.array_split(times, POINTS), np.array_split(values, POINTS), strict=True)
    means = [(part[0], mean.mean()) for part, mean in parts]
    return np.array([at for at, _ in means]), np.array([mean for _, mean in means])


# ------------------------------------------------------------------ clients


def clients(comparison: Comparison) -> str | None:
    """Mean TTFT of each client over all repeats; None where there is but one."""
    names = sorted({record.job.client for record in _served(comparison, comparison.spec.arms[0].name)})
    if len(names) < 2:
        return None
    shown = names[:20]

    def draw(axes: list[Axes]) -> None:
        (ax,) = axes
        width = 0.8 / len(comparison.spec.arms)
        for number, (arm, colour) in enumerate(_arms(comparison)):
            waits = client_waits(_served(comparison, arm))
            means = [waits.get(name, 0.0) for name in shown]
            fairness = _jain(list(waits.values()))
            places = [place + number * width for place in range(len(shown))]
            ax.bar(places, means, width, color=colour, label=f"{arm} (Jain {fairness:.2f})", align="edge")
        ax.set_xticks([place + 0.4 for place in range(len(shown))], [name or "(none)" for name in shown])
        ax.tick_params(axis="x", rotation=30 if len(shown) > 6 else 0)
        ax.set_ylabel("mean TTFT, in milliseconds")
        ax.grid(axis="x", visible=False)
        _legend_above(ax)

    return drawn("clients", (WIDTH, 3.2), 1, 1, draw)


def _jain(values: Sequence[float]) -> float:
    """Jain's index: 1 where all fare alike, 1/n where one has it all."""
    squares = sum(value * value for value in values)
    return sum(values) ** 2 / (len(values) * squares) if squares else 1.0


# ------------------------------------------------------------------ shared


def _arms(comparison: Comparison) -> Iterator[tuple[str, str]]:
    """Names and colours."""
    return ((arm.name, colour) for arm, colour in zip(comparison.spec.arms, cycle(COLOURS), strict=False))


def _legend_above(ax: Axes) -> None:
    """Where no line can run through it."""
    ax.legend(loc="lower right", bbox_to_anchor=(1, 1), ncols=len(COLOURS))


def _readable_scale(ax: Axes) -> None:
    """Logarithmic over a wide range, with as many plain numbers as there is room for."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

    low, high = ax.dataLim.intervalx
    if not 0 < low < high / WIDE:
        return
    ax.set_xscale("log")
    ax.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5) if high / low < 300 else (1, 3), numticks=12))
    ax.xaxis.set_minor_locator(NullLocator())
    ax.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.6g}"))


def _served(comparison: Comparison, arm: str) -> list[Record]:
    runs = (repeat[arm] for repeat in comparison.repeats)
    return [record for run in runs for record in run.records if record.served]
