"""How much memory the host has, without torch: the server asks, too."""

from __future__ import annotations

from pathlib import Path

import psutil

__all__ = ["free_host_memory"]

CGROUP = Path("/sys/fs/cgroup")


def free_host_memory() -> int:
    """Bytes that could be allocated now, within the control group's limit."""
    return min(int(psutil.virtual_memory().available), _cgroup_room())


def _cgroup_room() -> int:
    try:
        limit = (CGROUP / "memory.max").read_text().strip()
        used = int((CGROUP / "memory.current").read_text())
    except (OSError, ValueError):
        return 2**63
    return int(limit) - used if limit.isdigit() else 2**63
