"""Measures how certain a difference is while it is being measured, however often one looks.

A test that is looked at again and again, and stopped when it shows something, deceives: an interval of 95%
that is right once is wrong at one of a hundred looks far more often (Armitage, McPherson and Rowe 1969). The
intervals here hold at all looks together. n pairs are n measurements of a ratio's logarithm, as in
`turnout.lab.compare.statistics`; in place of Student's t stands its sequential form. With effects spread as
widely as the measurements are around it (prior variance G times theirs), the odds of "a difference" against
"none" are

    E = (1 + nG)^(-1/2) * ((1 + t²/(n-1)) / (1 + t²/((n-1)(1 + nG))))^(n/2),    t = mean * sqrt(n) / spread

Where nothing differs, E is a martingale that begins at 1, whatever the spread is, and so ever passes
1/alpha with probability alpha at most (Ville 1939). It is Lai's (1976) with a Gaussian in place of a flat
mixture: Wang and Ramdas 2025, "Anytime-valid t-tests and confidence sequences for Gaussian means with
unknown variance". What E does not exclude is the interval.

Of several metrics those are declared that the procedure of Benjamini and Hochberg finds with E in place of
1/p, which needs no independence between them (Wang and Ramdas 2022, "False discovery rate control with
e-values"), and intervals are widened to match (Xu, Wang and Ramdas 2024): one excludes 0 if and only if its
difference is declared.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Hashable, Mapping, Sequence
from typing import TypeVar

from turnout.lab.compare.statistics.statistics import (
    ALPHA,
    POWER,
    Difference,
    Logs,
    log_ratios,
    relative,
)
from turnout.lab.compare.statistics.t_distribution import t_quantile

__all__ = ["MOST_BLOCKS", "blocks_to_see", "differences", "log_evidence", "reach"]

G = 1.0
"""Variance of the prior on the effect, in variances of a measurement."""
MOST_BLOCKS = 10_000
"""Where the search for how many blocks it takes ends: a week of them, and more."""

Key = TypeVar("Key", bound=Hashable)


def log_evidence(t: float, n: int) -> float:
    """The logarithm of E for n measurements with this statistic; 0, for even odds, with fewer than two."""
    if n < 2:
        return 0.0
    if math.isinf(t):
        return math.inf
    square, wide = t * t / (n - 1), 1 + n * G
    return n / 2 * (math.log1p(square) - math.log1p(square / wide)) - math.log(wide) / 2


def reach(alpha: float, n: int) -> float:
    """The t at which E is 1 / alpha; infinite where so few measurements cannot say so much."""
    if n < 2:
        return math.inf
    wide = 1 + n * G
    growth = math.exp(min(2 / n * (math.log(wide) / 2 - math.log(alpha)), 700.0))
    return math.inf if growth >= wide else math.sqrt((n - 1) * (growth - 1) / (1 - growth / wide))


def differences(pairs: Mapping[Key, Sequence[tuple[float, float]]]) -> dict[Key, Difference]:
    """By the key of `pairs`: figures of the first arm and of the other, for each block.

    As `turnout.lab.compare.statistics.statistics.differences`, and p is what E says: 1/E, at most 1.
    """
    measured = {key: _Measured(log_ratios(values)) for key, values in pairs.items()}
    measured = {key: each for key, each in measured.items() if each.n}
    declared = _declared({key: each.log_evidence for key, each in measured.items()})
    alpha = ALPHA * max(1, len(declared)) / max(1, len(measured))
    return {key: each.difference(key in declared, alpha) for key, each in measured.items()}


def blocks_to_see(change: float, difference: Difference) -> int | None:
    """Blocks in all that would probably show `change`; None: more than `MOST_BLOCKS`."""
    wanted = math.log1p(change)

    def shows(blocks: int) -> bool:
        needed = reach(difference.alpha, blocks) + t_quantile(2 * (1 - POWER), blocks - 1)
        return needed * difference.spread <= wanted * math.sqrt(blocks)

    blocks = bisect_left(range(MOST_BLOCKS + 1), True, lo=2, key=shows)
    return blocks if blocks <= MOST_BLOCKS else None


class _Measured:
    """The logarithms of one metric's ratios."""

    def __init__(self, logs: Logs) -> None:
        self.n = len(logs)
        self.mean = float(logs.mean()) if self.n else 0.0
        self.spread = float(logs.std(ddof=1)) if self.n > 1 else math.nan

    @property
    def log_evidence(self) -> float:
        if self.n < 2 or self.mean == 0:
            return 0.0
        return log_evidence(self.mean * math.sqrt(self.n) / self.spread if self.spread else math.inf, self.n)

    def difference(self, declared: bool, alpha: float) -> Difference:
        wide = reach(alpha, self.n) * self.spread / math.sqrt(self.n) if self.n > 1 else math.nan
        return Difference(
            change=relative(self.mean),
            low=relative(self.mean - wide),
            high=relative(self.mean + wide),
            p=math.exp(-max(0.0, self.log_evidence)),
            declared=declared,
            repeats=self.n,
            spread=self.spread,
            alpha=alpha,
        )


def _declared(evidence: Mapping[Key, float]) -> set[Key]:
    """By e-BH: the most keys of which each has evidence for so many."""
    ordered = sorted(evidence, key=lambda key: evidence[key], reverse=True)
    enough = [
        rank
        for rank, key in enumerate(ordered, 1)
        if evidence[key] >= math.log(len(ordered) / (ALPHA * rank))
    ]
    return set(ordered[: max(enough, default=0)])
