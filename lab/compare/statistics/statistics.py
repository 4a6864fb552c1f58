"""Measures how certain a difference is: paired by repeat, in logarithms, with several metrics allowed for.

A repeat serves the same requests with every arm, so the ratio of two arms' figures within a repeat is free
of what repeats differ in: the draw of the workload and the machine's mood. Requests within a run share a
queue: they are not independent measurements, but repeats are. So n repeats are n measurements of the ratio's
logarithm, and the interval is Student's t over them. Bootstrapping five of them claims 95% and holds in 83%
of cases (``bench/comparison/intervals.py``).

Where one arm alone has a figure of 0 in some repeat, the ratio does not exist. Leaving that repeat out would
leave out the difference itself, so such a metric is judged by its differences, paired in the same way, as
shares of the first arm's mean.

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
from types import MappingProxyType
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
    "changes",
    "differences",
    "log_ratios",
    "relative",
    "repeats_to_see",
]

ALPHA = 0.05
POWER = 0.8
"""The probability with which a real difference should be found, where the repeats it takes are estimated."""
MOST_REPEATS = 500
"""Where the search for how many repeats it takes ends."""

ROUNDING = 1e-12
"""A change or a spread below it is rounding: a simulation repeats itself exactly."""

Logs = npt.NDArray[np.float64]
Pairs = Sequence[tuple[float, float]]
Key = TypeVar("Key", bound=Hashable)


@dataclass(frozen=True)
class Difference:
    """Of two arms in one metric. Changes are relative: 0.31 is 31% more than the first arm."""

    change: float
    """The geometric mean over the repeats; with `means`, that of the means, infinite from a mean of 0."""
    low: float
    """The interval's ends; nan with fewer than two repeats."""
    high: float
    p: float
    """Of a difference as large by chance; 1 with fewer than two repeats."""
    declared: bool
    repeats: int
    spread: float
    """Standard deviation of the ratio's logarithm between repeats; with `means`, of the change."""
    alpha: float
    """What the interval misses: 1 less its confidence."""
    means: tuple[float, float] | None = None
    """Of the first arm and of the other, where the differences between figures were judged, since in some
    repeat one alone is 0; None: their ratios were."""


def differences(
    pairs: Mapping[Key, Pairs], grains: Mapping[Key, float] = MappingProxyType({})
) -> dict[Key, Difference]:
    """By the key of `pairs`: figures of the first arm and of the other, for each repeat, none below 0.

    They are judged together. Pairs in which a figure is nan are left out, and keys without any others.
    grains: the least amount by which a figure can change, for figures that count something.
    """
    found = {key: _Measured.of(values, grains.get(key, 0.0)) for key, values in pairs.items()}
    measured = {key: each for key, each in found.items() if each is not None}
    declared = _benjamini_hochberg({key: each.p for key, each in measured.items()})
    alpha = ALPHA * max(1, len(declared)) / max(1, len(measured))
    return {key: each.difference(key in declared, alpha) for key, each in measured.items()}


def changes(pairs: Pairs) -> list[float]:
    """The change in each repeat, as `differences` measures it."""
    measured = _Measured.of(pairs, 0.0)
    return [] if measured is None else [measured.as_change(float(value)) for value in measured.values]


def repeats_to_see(change: float, difference: Difference) -> int | None:
    """Repeats in all that would probably show `change`; None: more than `MOST_REPEATS`."""
    wanted = math.log1p(change) if difference.means is None else change

    def shows(repeats: int) -> bool:
        reach = t_quantile(difference.alpha, repeats - 1) + t_quantile(2 * (1 - POWER), repeats - 1)
        return reach * difference.spread <= wanted * math.sqrt(repeats)

    repeats = bisect_left(range(MOST_REPEATS + 1), True, lo=2, key=shows)
    return repeats if repeats <= MOST_REPEATS else None


def relative(logarithm: float) -> float:
    """The change that a ratio is, by its logarithm; infinite beyond a float's range."""
    return math.inf if logarithm >= 700 else math.expm1(logarithm)


def log_ratios(pairs: Pairs) -> Logs:
    """Of the second to the first, of those pairs that have a ratio; 0 to 0 is no change."""
    # nan is neither above 0 nor 0.
    return np.array([math.log(b / a) if a else 0.0 for a, b in pairs if (a > 0 and b > 0) or a == b == 0])


@dataclass(frozen=True)
class _Measured:
    """One metric, by one value for each repeat."""

    values: Logs
    """Logarithms of ratios; with `means`, differences as shares of the first arm's mean, or where that is 0,
    of the other's."""
    means: tuple[float, float] | None
    grain: float
    """The least by which a difference can change, as such a share; 0 for ratios."""

    @classmethod
    def of(cls, pairs: Pairs, grain: float) -> _Measured | None:
        """None without a pair of figures."""
        known = [(a, b) for a, b in pairs if not (math.isnan(a) or math.isnan(b))]
        if not known:
            return None
        if all((a > 0) == (b > 0) for a, b in known):
            return cls(log_ratios(known), None, 0.0)
        base, other = (float(mean) for mean in np.mean(known, axis=0))
        whole = base or other
        return cls(np.array([(b - a) / whole for a, b in known]), (base, other), grain / whole)

    @property
    def n(self) -> int:
        return len(self.values)

    @property
    def mean(self) -> float:
        mean = float(self.values.mean())
        return 0.0 if self.spread == 0 and abs(mean) < ROUNDING else mean

    @property
    def spread(self) -> float:
        """0 where all that differs is rounding; else at least what rounding two counts to whole ones makes of
        their difference, since small counts may be alike by chance."""
        spread = float(self.values.std(ddof=1)) if self.n > 1 else math.nan
        return 0.0 if spread < ROUNDING else max(spread, self.grain / math.sqrt(6))

    @property
    def p(self) -> float:
        if self.n < 2:
            return 1.0
        error = self.spread / math.sqrt(self.n)
        if error == 0:
            return 1.0 if self.mean == 0 else 0.0
        return two_sided_p(self.mean / error, self.n - 1)

    def as_change(self, value: float) -> float:
        """One of `values`, or a mean of them, as a change."""
        if self.means is None:
            return relative(value)
        if not self.means[0]:
            return math.copysign(math.inf, value) if value else 0.0
        return max(-1.0, value)  # no figure is below 0

    def difference(self, declared: bool, alpha: float) -> Difference:
        mean, spread = self.mean, self.spread
        reach = t_quantile(alpha, self.n - 1) * spread / math.sqrt(self.n) if self.n > 1 else math.nan
        return Difference(
            change=self.as_change(mean),
            low=self.as_change(mean - reach),
            high=self.as_change(mean + reach),
            p=self.p,
            declared=declared,
            repeats=self.n,
            spread=spread,
            alpha=alpha,
            means=self.means,
        )


def _benjamini_hochberg(ps: Mapping[Key, float]) -> set[Key]:
    """The keys whose difference is declared."""
    if not ps:
        return set()
    from scipy.stats import false_discovery_control  # takes half a second, and nothing else here needs it

    adjusted = false_discovery_control(list(ps.values()), method="bh")
    return {key for key, p in zip(ps, adjusted, strict=True) if p <= ALPHA}
