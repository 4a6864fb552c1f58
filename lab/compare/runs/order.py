"""The order in which arms run."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from turnout.lab.arms import Arm

__all__ = ["Turn", "turns"]


class Turn(NamedTuple):
    arm: Arm
    repeat: int

    def trace_in(self, folder: Path | None) -> str:
        """The file for a trace of the run, in the folder of an experiment; empty: none is kept."""
        return "" if folder is None else str(folder.absolute() / f"{self.arm.name}-{self.repeat + 1}.json")


def turns(arms: Sequence[Arm], repeats: int) -> Iterator[Turn]:
    """A B, B A, A B, …: a machine that slowly warms up or is slowly taken by others hits all arms alike."""
    for repeat in range(repeats):
        for arm in arms if repeat % 2 == 0 else reversed(arms):
            yield Turn(arm, repeat)
