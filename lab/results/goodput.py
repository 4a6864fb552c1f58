"""Limits of good requests: ``ttft:200,tpot:50``, in milliseconds, as in vLLM."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from turnout.core.errors import ConfigError, did_you_mean
from turnout.lab.results.record import Record

__all__ = ["Goodput"]

METRICS = ("ttft", "tpot", "e2el")


@dataclass(frozen=True)
class Goodput:
    """Limits that a good request keeps, all of them."""

    limits: Mapping[str, float]
    """Milliseconds, by metric."""

    @classmethod
    def parse(cls, text: str) -> Goodput:
        """Raises ConfigError that says what was expected."""
        limits: dict[str, float] = {}
        for part in text.split(","):
            metric, _, limit = (side.strip() for side in part.partition(":"))
            if metric not in METRICS:
                known = ", ".join(METRICS)
                raise ConfigError(
                    f"goodput {text!r}: unknown metric {metric!r}; "
                    f"known: {known}{did_you_mean(metric, METRICS)}"
                )
            if metric in limits:
                raise ConfigError(f"goodput {text!r}: {metric} is limited twice; give each metric once")
            limits[metric] = _milliseconds(text, limit)
        return cls(limits)

    def meets(self, record: Record) -> bool:
        """Whether a request that did not fail is good. A request of a single token has a TPOT of 0."""
        return all(getattr(record, metric) * 1000 <= limit for metric, limit in self.limits.items())


def _milliseconds(text: str, limit: str) -> float:
    try:
        number = float(limit)
    except ValueError:
        number = 0.0
    if not number > 0:
        raise ConfigError(
            f"goodput {text!r}: a limit must be a number of milliseconds above 0, not {limit!r}; "
            "write METRIC:MS,METRIC:MS"
        )
    return number
