"""PromQL of a board, written from what the code says of a metric: its type and its labels."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

from turnout.scripts.metric_families import EVERYWHERE, Family, families
from turnout.server.metrics.request_metrics import PREFIX

RATE = "$__rate_interval"
"""Grafana's: never too short for the scrapes that there are."""


@dataclass(frozen=True)
class Query:
    expr: str
    legend: str


@cache
def metric(name: str) -> Family:
    """A metric by its name without the prefix. Raises LookupError."""
    try:
        return families()[PREFIX + name]
    except KeyError:
        raise LookupError(f"there is no metric {name!r}; did it get another name?") from None


def selected(family: Family, suffix: str = "", *only: str) -> str:
    """The series of a metric that the board's variables choose; `only`: further matchers."""
    chosen = ['instance=~"$instance"']
    if "model_name" in family.labels:
        chosen.append('model_name=~"$model_name"')
    return f"{family.name}{suffix}{{{', '.join([*chosen, *only])}}}"


def rate(name: str, *only: str, suffix: str = "") -> str:
    return f"rate({selected(metric(name), suffix, *only)}[{RATE}])"


def over(by: Sequence[str], expr: str, how: str = "sum") -> str:
    """An aggregation; by nothing: over all."""
    return f"{how} by ({', '.join(by)}) ({expr})" if by else f"{how}({expr})"


def named(by: Sequence[str], word: str = "") -> str:
    """A legend of labels and a word."""
    return " ".join([*(f"{{{{{label}}}}}" for label in by), *([word] if word else [])])


def value(
    name: str, *only: str, by: Sequence[str] = ("model_name",), word: str = "", how: str = "sum"
) -> Query:
    """A gauge as it is, a counter per second. Raises LookupError for a label that the metric lacks."""
    family = metric(name)
    if missing := set(by) - family.labels - EVERYWHERE:
        raise LookupError(f"{family.name} has no label {', '.join(missing)}; it has {set(family.labels)}")
    one = rate(name, *only) if family.type == "counter" else selected(family, "", *only)
    return Query(over(by, one, how), named(by, word))


def quantiles(name: str, *ranks: float, by: Sequence[str] = ("model_name",)) -> list[Query]:
    """Quantiles of a histogram, by its buckets."""
    summed = over(["le", *by], rate(name, suffix="_bucket"))
    return [Query(f"histogram_quantile({rank}, {summed})", named(by, f"p{rank * 100:g}")) for rank in ranks]


def mean(name: str, *, by: Sequence[str] = ("model_name",)) -> Query:
    """A histogram's mean."""
    total, count = (over(by, rate(name, suffix=suffix)) for suffix in ("_sum", "_count"))
    return Query(f"{total} / {count}", named(by, "mean"))


def share(part: Query, *whole: Query, word: str = "") -> Query:
    """A part of a sum, from 0 to 1."""
    summed = " + ".join(query.expr for query in whole)
    return Query(f"{part.expr} / ({summed})", word or part.legend)


def metrics_in(expr: str) -> list[str]:
    """The names of Turnout's metrics in a query."""
    return re.findall(rf"\b{re.escape(PREFIX)}\w+", expr)
