"""Opens a collective by its name."""

from __future__ import annotations

from collections.abc import Callable

from turnout.core.errors import ConfigError, did_you_mean
from turnout.core.interfaces.collective import Collective
from turnout.core.meeting import Meeting
from turnout.kernels.choice import native_kernels
from turnout.kernels.collectives.gloo import Gloo
from turnout.kernels.collectives.nccl import Nccl
from turnout.kernels.collectives.shm import SharedMemory

__all__ = ["COLLECTIVES", "collective_of_machine", "open_collective"]

COLLECTIVES: dict[str, Callable[[Meeting, int, int, int], Collective]] = {
    "gloo": Gloo,
    "shm": SharedMemory,
    "nccl": Nccl,
}
"""By name: what opens one, given a meeting, the rank, the ranks and the number of the group."""


def collective_of_machine() -> str:
    """Returns the best collective for processes of this machine that compute on its CPU."""
    try:
        native_kernels()
    except ConfigError:
        return "gloo"
    return "shm"


def open_collective(name: str, meeting: Meeting, rank: int, size: int, group: int = 0) -> Collective:
    """Joins a group of `size` ranks as its number `rank`; perhaps waits until all have joined.

    group: a number that the group has among those of the same meeting. Raises ConfigError for an unknown
    name, or a collective that this machine cannot run; CollectiveError where a rank does not come.
    """
    if not 0 <= rank < size:
        raise ConfigError(f"rank {rank} is not one of {size} ranks, which are numbered from 0")
    if name not in COLLECTIVES:
        hint = did_you_mean(name, COLLECTIVES)
        raise ConfigError(f"no collective is named {name!r}; there are {', '.join(COLLECTIVES)}{hint}")
    return COLLECTIVES[name](meeting, rank, size, group)
