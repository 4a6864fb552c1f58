"""Values as they come, and their mean, deviation and percentiles, in bounded memory."""

from __future__ import annotations

import math
from array import array
from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

__all__ = ["EXACT", "Distribution"]

EXACT = 1_000_000
"""The number of values that are kept as they are, in 8 MB; beyond it, percentiles are within `GRAIN`."""
GRAIN = 0.001
SMALLEST = 1e-9
"""Values below are counted as 0."""


class Distribution:
    """Not negative values. Up to a million percentiles are exact, beyond that they come from a histogram.

    The histogram's buckets grow geometrically, as in DDSketch (Masson et al. 2019).
    """

    def __init__(self, exact: int = EXACT) -> None:
        self._exact = exact
        self._values = array("d")
        self._buckets: NDArray[np.int64] | None = None
        self._count = 0
        self._sum = self._squares = 0.0

    def add(self, values: Iterable[float]) -> None:
        if isinstance(values, np.ndarray):
            self._values.frombytes(values.astype(np.float64, copy=False).tobytes())
        else:
            self._values.extend(values)
        if len(self._values) > self._exact:
            self._fold()

    def merge(self, other: Distribution) -> None:
        """Take in what another one was given, as it is kept there."""
        self.add(other._values)
        if other._buckets is not None:
            self._fold()
            assert self._buckets is not None
            longer, shorter = sorted((self._buckets, other._buckets), key=len, reverse=True)
            self._buckets = longer.copy()
            self._buckets[: len(shorter)] += shorter
            self._count += other._count
            self._sum += other._sum
            self._squares += other._squares

    @property
    def count(self) -> int:
        return self._count + len(self._values)

    @property
    def mean(self) -> float:
        """0 where there is nothing."""
        return (self._sum + math.fsum(self._values)) / self.count if self.count else 0.0

    @property
    def std(self) -> float:
        """The standard deviation of the values as a population."""
        if not self.count:
            return 0.0
        mean = self.mean
        folded = self._squares - 2 * mean * self._sum + self._count * mean * mean
        rest = np.asarray(self._values) - mean
        return math.sqrt(max(0.0, folded + float(rest @ rest)) / self.count)

    def percentiles(self, ranks: Sequence[float]) -> list[float]:
        """Interpolated linearly between values; 0 where there is nothing."""
        if not self.count:
            return [0.0] * len(ranks)
        if self._buckets is None:
            return [float(value) for value in np.percentile(np.asarray(self._values), ranks)]
        self._fold()
        cumulative = np.cumsum(self._buckets)
        return [_at(cumulative, rank / 100 * (self._count - 1)) for rank in ranks]

    def _fold(self) -> None:
        values = np.asarray(self._values)
        counts = np.bincount(_buckets(values), minlength=0 if self._buckets is None else len(self._buckets))
        if self._buckets is not None:
            counts[: len(self._buckets)] += self._buckets
        self._buckets = counts
        self._count += len(values)
        self._sum += float(values.sum())
        self._squares += float(values @ values)
        self._values = array("d")


_STEP = math.log((1 + GRAIN) / (1 - GRAIN))


def _buckets(values: NDArray[np.float64]) -> NDArray[np.int64]:
    """0 for next to nothing, then one for each `_STEP` of the logarithm."""
    logarithms = np.log(np.maximum(values, SMALLEST) / SMALLEST)
    return np.where(values < SMALLEST, 0, 1 + (logarithms / _STEP).astype(np.int64))


def _at(cumulative: NDArray[np.int64], place: float) -> float:
    """The value at a place in the order, interpolated between two."""
    below, above = (
        _middle(int(np.searchsorted(cumulative, whole, side="right")))
        for whole in (math.floor(place), math.ceil(place))
    )
    return below + (place % 1) * (above - below)


def _middle(bucket: int) -> float:
    return SMALLEST * math.exp((bucket - 0.5) * _STEP) if bucket else 0.0
