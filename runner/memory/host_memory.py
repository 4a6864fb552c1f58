"""Says how much memory the host has, without torch: the server process asks, too."""

from __future__ import annotations

import resource
from pathlib import Path

import psutil

from turnout.runner.memory.control_groups import control_groups

__all__ = ["free_address_space", "free_host_memory"]

UNLIMITED = 2**63
FILES = (("memory.max", "memory.current"), ("memory.limit_in_bytes", "memory.usage_in_bytes"))
"""Files of a control group's limit and of its use, in bytes, in both versions of control groups."""
CACHES = ("inactive_file", "active_file")
"""Pages of files, in its ``memory.stat``. They count as used, and are given up when memory is needed."""


def free_host_memory() -> int:
    """Returns the bytes that could be allocated now, within the limits of this process's control groups."""
    return min([int(psutil.virtual_memory().available), *map(_room, control_groups("memory"))])


def free_address_space() -> int:
    """Returns the bytes that this process alone may still map, within `ulimit -v`."""
    most, _ = resource.getrlimit(resource.RLIMIT_AS)
    if most == resource.RLIM_INFINITY:
        return UNLIMITED
    return max(0, most - int(psutil.Process().memory_info().vms))


def _room(group: Path) -> int:
    for limit, used in FILES:
        try:
            most = (group / limit).read_text().strip()
            room = int(most) - int((group / used).read_text()) if most.isdigit() else UNLIMITED
            return room + _cached(group)
        except OSError:
            continue
    return UNLIMITED


def _cached(group: Path) -> int:
    """Returns cached bytes. Version 1 has two figures; the one with ``total_`` includes subgroups."""
    fields = dict(line.split() for line in (group / "memory.stat").read_text().splitlines())
    return sum(int(fields.get(f"total_{name}", fields.get(name, 0))) for name in CACHES)
