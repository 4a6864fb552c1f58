"""Samples of an engine's state through a run: no more of them than a plot has use for."""

from __future__ import annotations

from turnout.lab.compare.runs.run import EngineSample

__all__ = ["EngineSamples"]

MAX_SAMPLES = 2000


class EngineSamples:
    """Takes a sample after each step, and keeps some at even distances, which grow with the run."""

    def __init__(self) -> None:
        self._kept: list[EngineSample] = []
        self._apart = 0.0
        """Seconds between two, at least."""

    def add(self, sample: EngineSample) -> None:
        if self._kept and sample.at - self._kept[-1].at < self._apart:
            return
        self._kept.append(sample)
        if len(self._kept) > MAX_SAMPLES:
            self._kept = self._kept[::2]
            self._apart = 2 * (sample.at - self._kept[0].at) / MAX_SAMPLES

    def all(self) -> list[EngineSample]:
        return list(self._kept)
