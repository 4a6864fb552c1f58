"""States a difference in plain words."""

from __future__ import annotations

import math

from turnout.lab.compare.statistics.metrics import Metric
from turnout.lab.compare.statistics.statistics import MOST_REPEATS, Difference, repeats_to_see

__all__ = ["amount", "change", "percent", "settled", "verdict", "within"]


MAX_SHARE = 99.99
"""The largest share that is written out: the interval of two repeats that differ is all but infinite."""


def verdict(arm: str, metric: Metric, difference: Difference, see: float) -> str:
    """``ljf raises p99 TTFT by 31% [24%, 39%]``; `see` is the smallest change that matters to the reader."""
    if difference.repeats < 2:
        return "one repeat cannot tell: give --repeat 2 or more"
    return settled(arm, metric, difference, see) or f"no difference shown: {_needed(difference, see)}"


def settled(arm: str, metric: Metric, difference: Difference, see: float) -> str | None:
    """The verdict, where more measurements would probably not change it; else None."""
    if difference.declared:
        return _declared(arm, metric, difference)
    if difference.low == difference.high:
        return "no difference: the same in every repeat"
    if -see / (1 + see) < difference.low and difference.high < see:
        return f"no difference of {100 * see:g}% or more"
    return None


def change(difference: Difference) -> str:
    """``+31%``; from a mean of 0 there is no share: ``from 0``."""
    return percent(difference.change) if _share_exists(difference) else "from 0"


def within(difference: Difference) -> str:
    """The interval: ``[-3%, +4%]``; with `means` ``[-3%, +4%] of the mean``."""
    if difference.repeats < 2 or not _share_exists(difference):
        return ""
    places = _places(difference.low, difference.high)
    return f"[{percent(difference.low, places)}, {percent(difference.high, places)}]{_whole(difference)}"


def percent(share: float, places: int | None = None, *, sign: bool = True) -> str:
    """``+31%``: to the percent where there are ten or more, else to a tenth, below one to a hundredth."""
    if share > MAX_SHARE:
        return f"over {percent(MAX_SHARE, 0, sign=sign)}"
    if places is None:
        places = _places(share)
    rounded = round(100 * share, places) or 0.0  # no -0.0
    return f"{rounded:{'+' if sign and rounded else ''}.{places}f}%"


def amount(value: float) -> str:
    """A figure as it is read: ``1,234``, ``56.78``, ``1e+300``, ``–`` where there is none."""
    if math.isnan(value):
        return "–"
    return f"{value:,.0f}" if 1000 <= abs(value) < 1e15 else f"{value:.4g}"


def _declared(arm: str, metric: Metric, difference: Difference) -> str:
    rises = difference.change > 0
    title = f"{arm} {'raises' if rises else 'lowers'} {metric.title}"
    value = "better" if rises == metric.higher_is_better else "worse"
    if difference.means is not None and not _share_exists(difference):
        return f"{title} from 0 to {amount(difference.means[1])}: {value}"
    ends = sorted((abs(difference.low), abs(difference.high)))
    places = _places(*ends)
    low, high = (percent(end, places, sign=False) for end in ends)
    size = percent(abs(difference.change), places, sign=False)
    return f"{title} by {size} [{low}, {high}]{_whole(difference)}: {value}"


def _whole(difference: Difference) -> str:
    """Of what a change is a share, where it is no ratio."""
    return "" if difference.means is None else " of the mean"


def _share_exists(difference: Difference) -> bool:
    return difference.means is None or difference.means[0] > 0


def _needed(difference: Difference, see: float) -> str:
    if not _share_exists(difference):
        return "a mean of 0 has no share to see"
    size, repeats = f"{100 * see:g}%", repeats_to_see(see, difference)
    if repeats is None:
        return f"{MOST_REPEATS} repeats would not do to see {size}"
    more = max(1, repeats - difference.repeats)
    return f"needs about {more} more repeat{'s' if more > 1 else ''} to see {size}"


def _places(*shares: float) -> int:
    largest = max(map(abs, shares))
    return 0 if largest >= 0.1 else 1 if largest >= 0.01 else 2
