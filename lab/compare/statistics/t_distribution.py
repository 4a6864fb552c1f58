"""Student's t distribution, from scipy.

scipy is imported by the first call, not with this module: ``turnout compare --help`` has no use for it.
"""

from __future__ import annotations

__all__ = ["t_quantile", "two_sided_p"]


def two_sided_p(t: float, freedom: int) -> float:
    """The probability that chance alone goes as far from 0 as `t`, either way."""
    from scipy.special import stdtr

    return 2 * float(stdtr(freedom, -abs(t)))


def t_quantile(alpha: float, freedom: int) -> float:
    """The t beyond which, on both sides together, lies `alpha`."""
    from scipy.special import stdtrit

    return -float(stdtrit(freedom, alpha / 2))
