"""Which cores the processes of a benchmark compute on."""

from __future__ import annotations

import os
from collections.abc import Iterable

import click

__all__ = ["divided", "move"]


def divided(others: int) -> tuple[set[int], set[int]]:
    """The cores of engines, and the last `others` for all else; 0: both have all of this process's."""
    cores = sorted(os.sched_getaffinity(0))
    if others >= len(cores):
        raise click.ClickException(f"engines need a core, too, and there are {len(cores)}")
    return set(cores[: len(cores) - others]), set(cores[-others:])


def move(processes: Iterable[int], cores: Iterable[int]) -> None:
    """Have all threads of `processes` run on `cores`, but not the processes that they have started."""
    for process in processes:
        for thread in os.listdir(f"/proc/{process}/task"):
            os.sched_setaffinity(int(thread), cores)
