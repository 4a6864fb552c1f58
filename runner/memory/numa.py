"""Finds the NUMA nodes of this machine: cores, and the memory that is near to them."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

__all__ = ["EnginePart", "engine_part", "give_way", "given_cores", "numa_nodes", "run_on"]

NODES = Path("/sys/devices/system/node")
TASKS = Path("/proc/self/task")


@dataclass(frozen=True)
class EnginePart:
    """What an engine has of a machine with several nodes."""

    nodes: tuple[int, ...]
    """Numbers of the nodes, as the system counts them."""
    cores: frozenset[int]
    """Their cores that this process may run on."""
    share: float
    """This engine's part of all cores that this process may run on."""


def numa_nodes() -> dict[int, frozenset[int]]:
    """Returns by node the cores that this process may run on; nodes without any are left out.

    Empty where the system doesn't tell, as elsewhere than on Linux.
    """
    if not hasattr(os, "sched_getaffinity"):
        return {}
    usable = os.sched_getaffinity(0)
    nodes = dict[int, frozenset[int]]()
    for folder in NODES.glob("node[0-9]*"):
        try:
            cores = _cores((folder / "cpulist").read_text()) & usable
        except OSError:
            continue
        if cores:
            nodes[int(folder.name.removeprefix("node"))] = cores
    return dict(sorted(nodes.items()))


def engine_part(nodes: dict[int, frozenset[int]], number: int, engines: int) -> EnginePart | None:
    """Returns the part of the engine of this number, from 0, of so many; None: there is nothing to divide.

    Engines take nodes in turn; where there are more nodes than engines, an engine has several.
    """
    if len(nodes) < 2 or engines < 2:
        return None
    numbers = list(nodes)
    first = number % engines
    mine = numbers[first::engines] if engines < len(nodes) else [numbers[first % len(nodes)]]
    neighbours = max(1, len(range(first % len(nodes), engines, len(nodes))))
    cores = frozenset[int]().union(*(nodes[node] for node in mine))
    total = sum(len(each) for each in nodes.values())
    return EnginePart(tuple(mine), cores, len(cores) / total / neighbours)


_given: frozenset[int] = frozenset()
"""The cores that the process had before it first kept to some of them."""


def given_cores() -> frozenset[int]:
    """Returns the cores that this process was given, though it may keep to some of them; empty if unknown."""
    if not hasattr(os, "sched_getaffinity"):
        return frozenset()
    return _given or frozenset(os.sched_getaffinity(0))


def run_on(cores: frozenset[int]) -> None:
    """Lets this process, with the threads that it has and will have, run on these cores alone."""
    global _given
    _given = given_cores()
    for task in _threads():
        try:
            os.sched_setaffinity(task, cores)
        except ProcessLookupError:  # it has ended
            continue


def give_way(niceness: int) -> None:
    """Lets this process, with the threads that it has and will have, give way to others on its cores.

    niceness: as `nice` has it, from 0 to 19; a process that has more keeps it. Does nothing where the system
    knows no such thing.
    """
    if not hasattr(os, "setpriority") or not TASKS.exists():
        return
    for task in _threads():
        try:
            os.setpriority(os.PRIO_PROCESS, task, max(niceness, os.getpriority(os.PRIO_PROCESS, task)))
        except ProcessLookupError:  # it has ended
            continue


def _threads() -> Sequence[int]:
    return [int(task.name) for task in TASKS.iterdir()]


def _cores(text: str) -> frozenset[int]:
    """The numbers of a list such as ``0-3,8-11``."""
    cores = set[int]()
    for part in text.strip().split(","):
        first, _, last = part.partition("-")
        if first:
            cores.update(range(int(first), int(last or first) + 1))
    return frozenset(cores)
