"""How an engine stood through a run, in no more samples than a plot has use for."""

from __future__ import annotations

from turnout.lab.compare.runs.run import Sample

__all__ = ["Samples"]

MOST = 2000


class Samples:
    """Takes one after each step; keeps them at even distances, which grow with the run."""

    def __init__(self) -> None:
        self._kept: list[Sample] = []
        self._apart = 0.0
        """Seconds between two, at least."""

    def add(self, sample: Sample) -> None:
        if self._kept and sample.at - self._kept[-1].at < self._apart:
            return
        self._kept.append(sample)
        if len(self._kept) > MOST:
            self._kept = self._kept[::2]
            self._apart = 2 * (sample.at - self._kept[0].at) / MOST

    def all(self) -> list[Sample]:
        return list(self._kept)
