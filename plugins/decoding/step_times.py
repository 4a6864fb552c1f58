"""How long steps take, by their number of tokens: learnt from those that are seen."""

from __future__ import annotations

import math
import statistics
from collections import deque

import numpy as np

__all__ = ["StepTimes"]

KEPT = 15
"""Latest steps of each size that count, by their median: one in between that was held up does no harm."""
LEAST = 3
"""Typical steps of a size, before which others are relied on: the first tend to be slow."""
LASTS = 4096
"""Steps for which a size is believed; a machine's speed changes with what else it does."""
DRIFT = 0.3
"""Of what the latest step took more or less than expected, expected of all sizes from now on."""
FINE = 8
"""Sizes up to this are told apart; above, four classes for each doubling."""


class StepTimes:
    """Seconds by tokens; between and beyond the sizes that were seen, along straight lines."""

    def __init__(self) -> None:
        self._sizes: dict[int, _Size] = {}
        self._steps = 0
        self._level = 1.0
        """How much longer steps take now than those that were kept: contexts grow, others use the machine."""
        self._curve: tuple[list[float], list[float]] | None = None
        """Tokens and seconds, ascending; None: to be made anew."""

    def saw(self, tokens: int, seconds: float, *, typical: bool = True) -> None:
        """A step of that many tokens. Of a size that has typical steps, the others do not count."""
        key = tokens if tokens <= FINE else FINE + int(4 * math.log2(tokens / FINE))
        size = self._sizes.setdefault(key, _Size())
        if expected := size.expected(typical):
            self._level *= min(2.0, max(0.5, seconds / (expected * self._level))) ** DRIFT
        self._steps += 1
        self._curve = None
        size.add(tokens, seconds / self._level, typical, self._steps)

    @property
    def known(self) -> int:
        """Sizes of which enough was seen."""
        return len(self._points()[0])

    def seconds(self, tokens: float) -> float | None:
        """What a step would take now, the same for all sizes if one is known; None: none is known yet."""
        sizes, times = self._points()
        if not sizes:
            return None
        if sizes[0] <= tokens <= sizes[-1] or len(sizes) == 1:
            return self._level * float(np.interp(tokens, sizes, times))
        slope = max(0.0, (times[-1] - times[0]) / (sizes[-1] - sizes[0]))
        if tokens > sizes[-1]:
            return self._level * (times[-1] + slope * (tokens - sizes[-1]))
        return self._level * max(times[0] / 2, times[0] - slope * (sizes[0] - tokens))

    def _points(self) -> tuple[list[float], list[float]]:
        if self._curve is None:
            points = sorted(filter(None, (size.point(self._steps) for size in self._sizes.values())))
            self._curve = [point[0] for point in points], [point[1] for point in points]
        return self._curve


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

    def expected(self, typical: bool) -> float | None:
        """Seconds, by those of the same kind."""
        seen = self._typical if typical else self._others
        return seen.seconds if seen.count >= LEAST else None

    def point(self, step: int) -> tuple[float, float] | None:
        """Tokens and seconds; None where too little was seen, or long ago."""
        if self._typical.count >= LEAST and step - self._last <= LASTS:
            return self._typical.tokens, self._typical.seconds
        return (self._others.tokens, self._others.seconds) if self._others.count else None


class _Latest:
    """A few measurements, and what is in their middle."""

    def __init__(self) -> None:
        self._seen: deque[tuple[int, float]] = deque(maxlen=KEPT)
        self.tokens = self.seconds = 0.0

    @property
    def count(self) -> int:
        return len(self._seen)

    def add(self, tokens: int, seconds: float) -> None:
        self._seen.append((tokens, seconds))
        sizes, times = zip(*self._seen, strict=True)
        self.tokens, self.seconds = statistics.fmean(sizes), statistics.median(times)
