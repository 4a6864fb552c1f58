"""``--fail-on "p99_ttft:+5%"``: the changes beyond which a comparison fails."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from turnout.core.errors import ConfigError, did_you_mean
from turnout.lab.compare.comparison import Comparison
from turnout.lab.compare.statistics.metrics import Metric
from turnout.lab.compare.statistics.statistics import Difference

__all__ = ["ChangeLimit", "failures", "parse_limits"]

_FORM = re.compile(r"\s*([a-z0-9_]+)\s*:\s*([+-])\s*(\d+(?:\.\d+)?)\s*%\s*")


@dataclass(frozen=True)
class ChangeLimit:
    """A change beyond which an arm fails."""

    metric: str
    change: float
    """0.05: a rise of more than 5%; -0.05: a fall of more than 5%."""

    def fails(self, difference: Difference) -> bool:
        """All of the interval is beyond it: then the change is shown to be."""
        nearest = difference.low if self.change > 0 else difference.high
        return nearest / self.change > 1

    def __str__(self) -> str:
        return f"{self.metric}:{100 * self.change:+g}%"


def parse_limits(text: str, metrics: Iterable[Metric]) -> list[ChangeLimit]:
    """Several with commas between. Raises ConfigError with a list of the metrics that there are."""
    known = [metric.name for metric in metrics]
    return [_parse_limit(part, known) for part in text.split(",")]


def failures(limits: Iterable[ChangeLimit], comparison: Comparison) -> Iterator[str]:
    """A line for each limit that an arm is shown to be beyond; what is not shown fails nothing.

    Arms that did not do the same work fail too, and so do limits of what was not measured: nothing can be
    said of them.
    """
    if not comparison.sound:
        yield "the arms did not do the same work: see the warnings"
    for arm, rows in comparison.rows.items():
        differences = {row.metric.name: (row.difference, row.verdict) for row in rows}
        for limit in limits:
            difference, verdict = differences.get(limit.metric, (None, ""))
            if difference is None:
                yield f"{limit.metric} of {arm} was not measured, so that {limit} cannot be checked"
            elif limit.fails(difference):
                yield f"{verdict}, beyond {limit}"


def _parse_limit(text: str, known: list[str]) -> ChangeLimit:
    match = _FORM.fullmatch(text)
    if match is None:
        raise ConfigError(
            f"cannot read the limit {text!r}; write METRIC:+N% or METRIC:-N%, such as p99_ttft:+5%"
        )
    name, sign, size = match[1].removesuffix("_ms"), match[2], float(match[3]) / 100
    if name not in known:
        raise ConfigError(
            f"no metric is called {name!r}{did_you_mean(name, known)}; known: {', '.join(known)}"
        )
    if size == 0:
        raise ConfigError(
            f"{text!r} limits a change to none at all; give a share above 0%, such as {name}:+1%"
        )
    return ChangeLimit(name, size if sign == "+" else -size)
