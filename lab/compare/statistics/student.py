"""Student's t distribution for whole degrees of freedom, where its integral is a finite sum.

Abramowitz & Stegun, Handbook of Mathematical Functions, 26.7.3 and 26.7.4. It saves a dependency on scipy.
"""

from __future__ import annotations

import math
from functools import lru_cache

__all__ = ["t_quantile", "two_sided_p"]


def two_sided_p(t: float, freedom: int) -> float:
    """How probable it is that chance alone goes as far from 0 as `t`, either way."""
    if math.isinf(t):
        return 0.0
    theta = math.atan(abs(t) / math.sqrt(freedom))
    if freedom % 2 == 0:
        return max(0.0, 1 - math.sin(theta) * _series(freedom, theta, first=1.0, start=1))
    inner = theta if freedom == 1 else theta + math.sin(theta) * _odd_series(freedom, theta)
    return max(0.0, 1 - 2 / math.pi * inner)


def _odd_series(freedom: int, theta: float) -> float:
    return _series(freedom, theta, first=math.cos(theta), start=2)


def _series(freedom: int, theta: float, *, first: float, start: int) -> float:
    """The sum of cosines: each term is the last one times cos² · k / (k + 1)."""
    square, term, total = math.cos(theta) ** 2, first, first
    for k in range(start, freedom - 2, 2):
        term *= square * k / (k + 1)
        total += term
    return total


@lru_cache(maxsize=1024)
def t_quantile(alpha: float, freedom: int) -> float:
    """The t beyond which, on both sides together, lies `alpha`."""
    low, high = 0.0, 1.0
    while two_sided_p(high, freedom) > alpha and high < 1e12:
        high *= 2
    while high - low > 1e-9 * high:
        middle = (low + high) / 2
        low, high = (middle, high) if two_sided_p(middle, freedom) > alpha else (low, middle)
    return high
