"""Quantiles of what histograms have counted since the last look."""

from __future__ import annotations

import math
from itertools import pairwise

from prometheus_client.registry import Collector

from turnout.server.metrics.request_metrics import PREFIX

__all__ = ["Latencies"]

HISTOGRAMS = {"time_to_first_token_seconds": "ttft", "request_time_per_output_token_seconds": "tpot"}
QUANTILES = {"": 0.5, "95": 0.95}


class Latencies:
    """Of one arm."""

    NAMES = tuple(f"{PREFIX}{name}_bucket" for name in HISTOGRAMS)
    """The samples that it looks at."""

    def __init__(self) -> None:
        self._before: dict[str, dict[float, float]] = {}

    def since(self, metrics: Collector) -> dict[str, float]:
        """Returns `ttft`, `ttft95`, `tpot` and `tpot95`, in seconds, of what came since the last call."""
        found = {}
        for family in metrics.collect():
            if (name := HISTOGRAMS.get(family.name.removeprefix(PREFIX))) is None:
                continue
            buckets = [each for each in family.samples if each.name.endswith("_bucket")]
            now = {float(each.labels["le"]): each.value for each in buckets}
            before = self._before.get(name, {})
            self._before[name] = now
            counts = {bound: value - before.get(bound, 0.0) for bound, value in now.items()}
            for suffix, share in QUANTILES.items():
                if (value := quantile(counts, share)) is not None:
                    found[name + suffix] = value
        return found


def quantile(counts: dict[float, float], share: float) -> float | None:
    """As PromQL's ``histogram_quantile`` has it, of cumulative counts by upper bound; None of none."""
    bounds = [0.0, *sorted(counts)]
    if len(bounds) < 3 or not (whole := counts[bounds[-1]]):
        return None
    for low, high in pairwise(bounds):
        below = counts.get(low, 0.0)
        if counts[high] >= share * whole:
            if high == math.inf:
                return low
            return round(low + (high - low) * (share * whole - below) / (counts[high] - below), 6)
    return None
