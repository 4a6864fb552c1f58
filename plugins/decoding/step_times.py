"""How long steps take, by their number of tokens: learnt from those that are seen."""

from __future__ import annotations

import math
import statistics
from collections import deque

import numpy as np

__all__ = ["StepTimes"]

KEPT = 9
"""Latest steps of each size that count, by their median: one in between that was held up does no harm."""
LASTS = 4096
"""Steps for which a size is believed; a machine's speed changes with what else it does."""
FINE = 8
"""Sizes up to this are told apart; above, four classes for each doubling."""


class StepTimes:
    """Seconds by tokens; between and beyond the sizes that were seen, along straight lines."""

    def __init__(self) -> None:
        self._sizes: dict[int, _Size] = {}
        self._steps = 0
        self._known = False
        """A typical one was seen."""
        self._curve: tuple[list[float], list[float]] | None = None
        """Tokens and seconds, ascending; None: to be made anew."""

    def saw(self, tokens: int, seconds: float, *, typical: bool = True) -> None:
        """A step of that many tokens. Of a size that has typical steps, the others do not count."""
        self._steps += 1
        self._known = self._known or typical
        self._curve = None
        key = tokens if tokens <= FINE else FINE + int(4 * math.log2(tokens / FINE))
        self._sizes.setdefault(key, _Size()).add(tokens, seconds, typical, self._steps)

    def seconds(self, tokens: float) -> float | None:
        """What a step would take; None: too little was seen yet."""
        if self._curve is None:
            points = sorted(filter(None, (size.point(self._steps) for size in self._sizes.values())))
            self._curve = [point[0] for point in points], [point[1] for point in points]
        sizes, times = self._curve
        if not self._known and len(sizes) < 2:
            return None
        if sizes[0] <= tokens <= sizes[-1] or len(sizes) == 1:
            return float(np.interp(tokens, sizes, times))
        slope = max(0.0, (times[-1] - times[0]) / (sizes[-1] - sizes[0]))
        if tokens > sizes[-1]:
            return times[-1] + slope * (tokens - sizes[-1])
        return max(times[0] / 2, times[0] - slope * (sizes[0] - tokens))


class _Size:
    """Steps of about equal size."""

    def __init__(self) -> None:
        self._typical = _Latest()
        self._others = _Latest()
        self._last = 0
        """When the latest typical one was."""

    def add(self, tokens: int, seconds: float, typical: bool, step: int) -> None:
        (self._typical if typical else self._others).add(tokens, seconds)
        self._last = step if typical else self._last

    def point(self, step: int) -> tuple[float, float] | None:
        """Tokens and seconds; None where all that was seen is long ago."""
        fresh = step - self._last <= LASTS
        return (self._typical.middle if fresh else None) or self._others.middle


class _Latest:
    """A few measurements, and what is in their middle."""

    def __init__(self) -> None:
        self._seen: deque[tuple[int, float]] = deque(maxlen=KEPT)
        self.middle: tuple[float, float] | None = None

    def add(self, tokens: int, seconds: float) -> None:
        self._seen.append((tokens, seconds))
        sizes, times = zip(*self._seen, strict=True)
        self.middle = statistics.fmean(sizes), statistics.median(times)
