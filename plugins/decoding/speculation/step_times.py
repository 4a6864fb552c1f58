"""The time of a step by its number of tokens, learnt from the steps that were measured."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections import deque

__all__ = ["StepTimes"]

KEPT = 15
"""Latest steps of each size whose median counts: a single delayed step has no effect."""
MIN_TYPICAL = 3
"""Typical steps of a size, before which others are used: the first tend to be slow."""
MAX_AGE_STEPS = 4096
"""Steps after which the times of a size are no longer used: other load changes the machine's speed."""
DRIFT = 0.3
"""Share of the latest step's deviation that the expected times of all sizes follow."""
NEAR = 1.5
"""Largest ratio of two sizes between which times are interpolated along a straight line."""
EXACT_SIZES = 8
"""Sizes up to this one are classes of their own; above, there are eight classes for each doubling."""


class StepTimes:
    """Seconds by tokens.

    Times are interpolated along straight lines between sizes that are near one another, and extrapolated
    beyond the smallest and the largest. Between two sizes that are far apart, such as one token and a prompt,
    a step is assumed to take the least time possible: reading the weights takes as long for a few tokens as
    for one, and a straight line would keep the controller from ever finding that out.
    """

    def __init__(self) -> None:
        self._sizes: dict[int, _Size] = {}
        self._steps = 0
        self._level = 1.0
        """The time of steps now over that when measured: contexts grow, other programs use the machine."""
        self._curve: tuple[list[float], list[float]] | None = None
        """Tokens and seconds, ascending; None: to be computed again."""

    def record(self, tokens: int, seconds: float, *, typical: bool = True) -> None:
        """Adds a step. Where a size has typical steps, its others do not count."""
        key = tokens if tokens <= EXACT_SIZES else EXACT_SIZES + int(8 * math.log2(tokens / EXACT_SIZES))
        size = self._sizes.get(key)
        if size is None:
            size = self._sizes[key] = _Size()
        if expected := size.expected(typical):
            self._level *= min(2.0, max(0.5, seconds / (expected * self._level))) ** DRIFT
        self._steps += 1
        self._curve = None
        size.add(tokens, seconds / self._level, typical, self._steps)

    @property
    def known_sizes(self) -> int:
        """Sizes with enough measurements."""
        return len(self._points()[0])

    def seconds(self, tokens: float) -> float | None:
        """The expected time of a step now; None if no size is known yet, the same for all if only one is."""
        sizes, times = self._points()
        if not sizes:
            return None
        if len(sizes) == 1:
            return self._level * times[0]
        if sizes[0] <= tokens <= sizes[-1]:
            return self._level * _between(tokens, sizes, times)
        slope = max(0.0, (times[-1] - times[0]) / (sizes[-1] - sizes[0]))
        if tokens > sizes[-1]:
            return self._level * (times[-1] + slope * (tokens - sizes[-1]))
        return self._level * max(times[0] / 2, times[0] - slope * (sizes[0] - tokens))

    def _points(self) -> tuple[list[float], list[float]]:
        if self._curve is None:
            points = sorted(filter(None, (size.point(self._steps) for size in self._sizes.values())))
            self._curve = [point[0] for point in points], _ascending([point[1] for point in points])
        return self._curve


def _ascending(times: list[float]) -> list[float]:
    """The nearest sequence that never falls, by pooling adjacent violators.

    Measurements in which a larger step takes less time are noise.
    """
    pools: list[tuple[float, int]] = []
    for seconds in times:
        count = 1
        while pools and pools[-1][0] > seconds:
            mean, many = pools.pop()
            seconds = (mean * many + seconds * count) / (many + count)
            count += many
        pools.append((seconds, count))
    return [mean for mean, many in pools for _ in range(many)]


def _between(tokens: float, sizes: list[float], times: list[float]) -> float:
    above = bisect_left(sizes, tokens)
    if sizes[above] == tokens:
        return times[above]
    (low, high), (least, most) = sizes[above - 1 : above + 1], times[above - 1 : above + 1]
    straight = least + (most - least) * (tokens - low) / (high - low)
    if high <= NEAR * low:
        return straight
    # A step takes no less than the smaller one, and no less for each token than the larger one. If the time
    # already grew between smaller sizes, it goes on growing at that rate.
    slope = (least - times[above - 2]) / (low - sizes[above - 2]) if above > 1 else 0.0
    return min(straight, max(least + slope * (tokens - low), least, most * tokens / high))


class _Size:
    """Measured steps of about equal size."""

    def __init__(self) -> None:
        self._typical = _Latest()
        self._others = _Latest()
        self._last = 0
        """Number of the latest typical step."""

    def add(self, tokens: int, seconds: float, typical: bool, step: int) -> None:
        (self._typical if typical else self._others).add(tokens, seconds)
        self._last = step if typical else self._last

    def expected(self, typical: bool) -> float | None:
        """Median seconds of the steps that are typical, or of those that are not."""
        seen = self._typical if typical else self._others
        return seen.seconds if seen.count >= MIN_TYPICAL else None

    def point(self, step: int) -> tuple[float, float] | None:
        """Tokens and seconds; None without enough recent measurements."""
        if self._typical.count >= MIN_TYPICAL and step - self._last <= MAX_AGE_STEPS:
            return self._typical.tokens, self._typical.seconds
        return (self._others.tokens, self._others.seconds) if self._others.count else None


class _Latest:
    """The latest measurements: their mean size and median time."""

    def __init__(self) -> None:
        self._tokens: deque[int] = deque(maxlen=KEPT)
        self._seconds: deque[float] = deque(maxlen=KEPT)
        self.tokens = self.seconds = 0.0

    @property
    def count(self) -> int:
        return len(self._seconds)

    def add(self, tokens: int, seconds: float) -> None:
        self._tokens.append(tokens)
        self._seconds.append(seconds)
        times = sorted(self._seconds)
        middle = len(times) // 2
        self.seconds = times[middle] if len(times) % 2 else (times[middle - 1] + times[middle]) / 2
        self.tokens = sum(self._tokens) / len(times)
