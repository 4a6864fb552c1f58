"""States a difference in plain words, while it is being measured."""

from __future__ import annotations

import math

from turnout.lab.ab.sequential import MOST_BLOCKS, blocks_to_see
from turnout.lab.compare.statistics.metrics import Metric
from turnout.lab.compare.statistics.statistics import Difference
from turnout.lab.compare.statistics.verdicts import settled

__all__ = ["live_verdict"]


def live_verdict(arm: str, metric: Metric, difference: Difference | None, see: float, pace: float) -> str:
    """As `turnout.lab.compare.statistics.verdicts.verdict`; `pace`: seconds that a block takes."""
    if difference is None:
        return "not measured yet"
    if difference.repeats < 2:
        return "one block cannot tell"
    return (
        settled(arm, metric, difference, see) or f"no difference shown yet: {_needed(difference, see, pace)}"
    )


def _needed(difference: Difference, see: float, pace: float) -> str:
    size, blocks = f"{100 * see:g}%", blocks_to_see(see, difference)
    if blocks is None:
        return f"{MOST_BLOCKS:,} blocks would not do to see {size}"
    more = max(1, blocks - difference.repeats)
    return (
        f"needs about {more:,} more block{'s' if more > 1 else ''} ({_duration(more * pace)}) to see {size}"
    )


def _duration(seconds: float) -> str:
    """``40 minutes``: in the largest unit of which there are two."""
    if math.isnan(seconds):
        return "pace unknown"
    for unit, length in (("days", 86400), ("hours", 3600), ("minutes", 60)):
        if seconds >= 2 * length:
            return f"{seconds / length:.0f} {unit}"
    return f"{seconds:.0f} seconds"
