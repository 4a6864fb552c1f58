"""Arrival processes: endless sequences of times in seconds, non-decreasing, from a seeded source."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator
from itertools import count, repeat

__all__ = ["constant", "diurnal", "gamma", "poisson", "ramp", "together"]


def poisson(rng: random.Random, rate: float) -> Iterator[float]:
    """`rate` a second, each independent of the others."""
    return gamma(rng, rate, 1.0)


def gamma(rng: random.Random, rate: float, burstiness: float) -> Iterator[float]:
    """Gaps are gamma distributed, of shape `burstiness` as in vLLM: 1 is Poisson, less comes in bursts."""
    at = 0.0
    while True:
        at += rng.gammavariate(burstiness, 1 / (rate * burstiness))
        yield at


def constant(rate: float) -> Iterator[float]:
    """A clock's ticks, the first at 0."""
    return (tick / rate for tick in count())


def together() -> Iterator[float]:
    """All at once."""
    return repeat(0.0)


def ramp(rng: random.Random, start: float, end: float, seconds: float) -> Iterator[float]:
    """Poisson, at a rate that goes from `start` to `end` within `seconds` and stays there.

    Each is where as many arrivals are expected as at that place of a process of rate 1. (Thinned, a low rate
    after a high one would take draws without end.)
    """
    growth, until_end = (end - start) / seconds, (start + end) / 2 * seconds
    for expected in poisson(rng, 1.0):
        if expected < until_end:
            yield 2 * expected / (start + math.sqrt(start * start + 2 * growth * expected))
        else:
            yield seconds + (expected - until_end) / end


def diurnal(rng: random.Random, rate: float, swing: float, period: float) -> Iterator[float]:
    """Poisson, at a rate that swings about its mean once a `period`, and begins at its lowest: night."""
    return _thinned(
        rng, rate * (1 + swing), lambda at: rate * (1 - swing * math.cos(2 * math.pi * at / period))
    )


def _thinned(rng: random.Random, peak: float, rate: Callable[[float], float]) -> Iterator[float]:
    """A Poisson process of a rate that changes (Lewis and Shedler 1979)."""
    for at in poisson(rng, peak):
        if rng.random() * peak < rate(at):
            yield at
