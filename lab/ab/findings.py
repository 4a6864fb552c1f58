"""What speaks against the figures of a live A/B test, in words."""

from __future__ import annotations

import math
from collections.abc import Mapping

from turnout.lab.ab.tally import Tally
from turnout.lab.compare.statistics.statistics import Logs
from turnout.lab.results.failures import tell_policy_faults

__all__ = ["findings"]

MIN_BLOCKS = 20
"""Blocks that it takes to tell whether successive ones are alike."""


def findings(tallies: Mapping[str, Tally], policy_faults: Mapping[str, int], logs: Logs) -> list[str]:
    """What to know of the arms' requests before their figures are trusted.

    policy_faults: by arm, answers of its scheduling policies that could not be carried out.
    logs: one number a block: how one arm's figure compares with the other's, as a logarithm.
    """
    found = [
        f"{arm}: {tally.failed} of {tally.completed + tally.failed} answers failed, the latest because: "
        f"{tally.latest_error}"
        for arm, tally in tallies.items()
        if tally.failed
    ]
    found += [tell_policy_faults(arm, faults) for arm, faults in policy_faults.items() if faults]
    alike = _autocorrelation(logs) if len(logs) >= MIN_BLOCKS else 0.0
    if alike > 2 / math.sqrt(max(1, len(logs))):
        found.append(
            f"successive blocks are alike (autocorrelation {alike:.2f}): they are not independent, and "
            "intervals are narrower than they should be"
        )
    return found


def _autocorrelation(values: Logs) -> float:
    """The correlation of each value with the next."""
    rest = values - values.mean()
    total = float(rest @ rest)
    return float(rest[:-1] @ rest[1:]) / total if total else 0.0
