"""Finds the control groups of this process, whose limits a container or a service has, without torch."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

__all__ = ["control_groups", "cpu_quota"]

ROOT = Path("/sys/fs/cgroup")
MEMBERSHIP = Path("/proc/self/cgroup")


def control_groups(controller: str) -> Iterator[Path]:
    """Yields the process's control groups and those around them; a container sees its own as the root.

    controller: ``memory`` or ``cpu``, which version 1 of control groups keeps apart.
    """
    try:
        lines = MEMBERSHIP.read_text().splitlines()
    except OSError:
        return
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if controllers and controller not in controllers.split(","):
            continue
        root = ROOT / controller if controllers else ROOT
        folder = root / path.lstrip("/")
        yield from (group for group in (folder, *folder.parents) if group.is_relative_to(root))


def cpu_quota() -> float | None:
    """Returns how many cores' time the process may use; None: there is no quota.

    A quota does not hide cores: a process with more threads than its quota is stopped several times a second.
    """
    return min((quota for group in control_groups("cpu") if (quota := _quota(group))), default=None)


def _quota(group: Path) -> float | None:
    """Reads a group's quota, in either version of control groups; None: it has none."""
    try:
        most, period = (group / "cpu.max").read_text().split()
    except OSError:
        try:
            most = (group / "cpu.cfs_quota_us").read_text()
            period = (group / "cpu.cfs_period_us").read_text()
        except OSError:
            return None
    return int(most) / int(period) if most.strip().isdigit() else None
