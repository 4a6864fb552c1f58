"""Measures how certain a difference is: paired by repeat, in logarithms, with several metrics allowed for.

A repeat serves the same requests with every arm, so the ratio of two arms' figures within a repeat is free
of what repeats differ in: the draw of the workload and the machine's mood. Requests within a run share a
queue: they are not independent measurements, but repeats are. So n repeats are n measurements of the ratio's
logarithm, and the interval is Student's t over them. Bootstrapping five of them claims 95% and holds in 83%
of cases (``bench/comparison/intervals.py``).

Of many metrics some differ by chance. Differences are declared by the procedure of
Benjamini and Hochberg (1995): of those declared, at most 5% are expected to be false; where nothing
differs, anything at all is declared in at most 5% of comparisons. Intervals are widened to match (Benjamini
and Yekutieli 2005), so one excludes 0 if and only if its difference is declared.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from turnout.lab.compare.statistics.t_distribution import t_quantile, two_sided_p

__all__ = [
    "ALPHA",
    "MOST_REPEATS",
    "POWER",
    "Difference",
    "Logs",
    "differences",
    "log_ratios",
    "repeats_to_see",
]

ALPHA = 0.05
POWER = 0.8
"""The probability with which a real difference should be found, where the repeats it takes are estimated."""
MOST_REPEATS = 500
"""Where the search for how many repeats it takes ends."""

Logs = npt.NDArray[np.float64]
Key = TypeVar("Key", bound=Hashable)


@dataclass(frozen=True)
class Difference:
    """Of two arms in one metric. Changes are relative: 0.31 is 31% more than the first arm."""

    change: float
    """The geometric mean over the repeats."""
    low: float
    """The interval's ends; nan with fewer than two repeats."""
    high: float
    p: float
    """Of a difference as large by chance; 1 with fewer than two repeats."""
    declared: bool
    repeats: int
    spread: float
    """Standard deviation of the ratio's logarithm between repeats."""
    alpha: float
    """What the interval misses: 1 less its confidence."""


def differences(pairs: Mapping[Key, Sequence[tuple[float, float]]]) -> dict[Key, Difference]:
    """By the key of `pairs`: figures of the first arm and of the other, for each repeat.

    They are judged together. Pairs that have no ratio are left out, and keys without any.
    """
    logs = {key: log_ratios(values) for key, values in pairs.items()}
    logs = {key: values for key, values in logs.items() if len(values)}
    declared = _benjamini_hochberg({key: _p(values) for key, values in logs.items()})
    alpha = ALPHA * max(1, len(declared)) / max(1, len(logs))
    return {key: _difference(values, key in declared, alpha) for key, values in logs.items()}


def repeats_to_see(change: float, difference: Difference) -> int | None:
    """Repeats in all that would probably show `change`; None: more than `MOST_REPEATS`."""
    wanted = math.log1p(change)

    def shows(repeats: int) -> bool:
        reach = t_quantile(difference.alpha, repeats - 1) + t_quantile(2 * (1 - POWER), repeats - 1)
        return reach * difference.spread <= wanted * math.sqrt(repeats)

    repeats = bisect_left(range(MOST_REPEATS + 1), True, lo=2, key=shows)
    return repeats if repeats <= MOST_REPEATS else None


def log_ratios(pairs: Sequence[tuple[float, float]]) -> Logs:
    """Of the second to the first, of those pairs that have a ratio."""
    return np.array([math.log(b / a) for a, b in pairs if a > 0 and b > 0])  # nan is not above 0


def _p(logs: Logs) -> float:
    if len(logs) < 2:
        return 1.0
    mean, error = float(logs.mean()), _spread(logs) / math.sqrt(len(logs))
    if error == 0:
        return 1.0 if mean == 0 else 0.0
    return two_sided_p(mean / error, len(logs) - 1)


def _spread(logs: Logs) -> float:
    """0 where all that differs is rounding: a simulation repeats itself exactly."""
    spread = float(logs.std(ddof=1)) if len(logs) > 1 else math.nan
    return 0.0 if spread < 1e-12 else spread


def _benjamini_hochberg(ps: Mapping[Key, float]) -> set[Key]:
    """The keys whose difference is declared."""
    if not ps:
        return set()
    from scipy.stats import false_discovery_control  # takes half a second, and nothing else here needs it

    adjusted = false_discovery_control(list(ps.values()), method="bh")
    return {key for key, p in zip(ps, adjusted, strict=True) if p <= ALPHA}


def _difference(logs: Logs, declared: bool, alpha: float) -> Difference:
    n, mean, spread = len(logs), float(logs.mean()), _spread(logs)
    reach = t_quantile(alpha, n - 1) * spread / math.sqrt(n) if n > 1 else math.nan
    return Difference(
        change=math.expm1(mean),
        low=math.expm1(mean - reach),
        high=math.expm1(mean + reach),
        p=_p(logs),
        declared=declared,
        repeats=n,
        spread=spread,
        alpha=alpha,
    )
