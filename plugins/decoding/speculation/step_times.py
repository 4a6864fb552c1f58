"""How long steps take, by their number of tokens: learnt from those that are seen."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections import deque

__all__ = ["StepTimes"]

KEPT = 15
"""Latest steps of each size that count, by their median: one in between that was held up does no harm."""
LEAST = 3
"""Typical steps of a size, before which others are relied on: the first tend to be slow."""
LASTS = 4096
"""Steps for which a size is believed; a machine's speed changes with what else it does."""
DRIFT = 0.3
"""Of what the latest step took more or less than expected, expected of all sizes from now on."""
NEAR = 1.5
"""Sizes of which one is at most so many times the other tell about those between."""
FINE = 8
"""Sizes up to this are told apart; above, eight classes for each doubling."""


class StepTimes:
    """Seconds by tokens.

    Along a straight line between sizes that are near one another, and beyond all of them. Between two that
    are far apart, such as a token and a prompt, a step is believed to take as little as it can: reading the
    weights takes the same for few tokens as for one, and a straight line would never let that be found out.
    """

    def __init__(self) -> None:
        self._sizes: dict[int, _Size] = {}
        self._steps = 0
        self._level = 1.0
        """How much longer steps take now than those that were kept: contexts grow, others use the machine."""
        self._curve: tuple[list[float], list[float]] | None = None
        """Tokens and seconds, ascending; None: to be made anew."""

    def saw(self, tokens: int, seconds: float, *, typical: bool = True) -> None:
        """A step of that many tokens. Of a size that has typical steps, the others do not count."""
        key = tokens if tokens <= FINE else FINE + int(8 * math.log2(tokens / FINE))
        size = self._sizes.get(key)
        if size is None:
            size = self._sizes[key] = _Size()
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
    """The nearest that never fall, by pooling adjacent violators: that larger steps take less is noise."""
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
    # Not less than the smaller step, nor for a token less than in the larger one; and if tokens have begun to
    # take their time in smaller steps, they do here.
    slope = (least - times[above - 2]) / (low - sizes[above - 2]) if above > 1 else 0.0
    return min(straight, max(least + slope * (tokens - low), least, most * tokens / high))


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
