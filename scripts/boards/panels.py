"""Panels of one metric, which its help describes."""

from __future__ import annotations

from collections.abc import Sequence

from turnout.scripts.boards.board import Panel
from turnout.scripts.boards.queries import Query, mean, metric, over, quantiles, rate, value

REPLICA = ("instance", "model_name", "replica")
ARM = ("model_name", "arm")
UNITS = {"seconds": "s", "ratio": "percentunit", "perc": "percentunit"}
"""By the last word of a metric's name."""


def unit_of(name: str) -> str:
    return UNITS.get(name.removesuffix("_total").rpartition("_")[2], "short")


def one(
    name: str, title: str, *, by: Sequence[str] = ("model_name",), how: str = "sum", width: int = 8
) -> Panel:
    """A gauge as it is, a counter per second."""
    family = metric(name)
    most = 1.0 if unit_of(name) == "percentunit" else None
    queries = [value(name, by=by, how=how)]
    return Panel(title, queries, unit_of(name), family.help, width=width, most=most)


def latency(name: str, title: str, *, by: Sequence[str] = ("model_name",), width: int = 8) -> Panel:
    """Quantiles and mean of a histogram."""
    queries = [*quantiles(name, 0.5, 0.95, 0.99, by=by), mean(name, by=by)]
    return Panel(title, queries, unit_of(name), metric(name).help, width=width)


def lengths(name: str, title: str) -> Panel:
    """A histogram's buckets over time."""
    increase = rate(name, suffix="_bucket").replace("rate(", "increase(", 1)
    return Panel(title, [Query(over(["le"], increase), "{{le}}")], "short", metric(name).help, "heatmap", 12)
