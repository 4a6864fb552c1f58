"""How an engine's process ended, and whether the engine, or a request in it, may be at fault."""

from __future__ import annotations

import signal
from pathlib import Path

from turnout.core.interfaces.launcher import Death

__all__ = ["OomKills", "death_of"]

_FROM_WITHIN = frozenset({"SIGSEGV", "SIGABRT", "SIGBUS", "SIGILL", "SIGFPE", "SIGTRAP", "SIGSYS"})
"""Signals that a process brings upon itself. All others come from another process."""


def death_of(code: int, *, out_of_memory: bool) -> Death:
    """From a process's exit code, a negative signal, and whether the kernel killed for memory meanwhile.

    SIGKILL is a fault only if memory was short: the kernel then picks the process that takes the most.
    """
    if code >= 0:
        return Death(f"exited with code {code}", fault=True)
    name = _name_of(-code)
    if name == "SIGKILL":
        why = ", as memory was short" if out_of_memory else " from outside; memory was not short"
        return Death(f"was ended by {name}{why}", fault=out_of_memory)
    return Death(f"was ended by {name}", fault=name in _FROM_WITHIN)


def _name_of(number: int) -> str:
    """A signal's name; real-time signals have none of their own but the first and the last."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


class OomKills:
    """Tells whether the kernel has killed a process for memory since this was made.

    It counts those of this process's control group, which a container is, else those of the machine.
    """

    def __init__(self, root: Path = Path("/")) -> None:
        self._root = root
        self._before = self._count()

    def happened(self) -> bool:
        return self._count() > self._before

    def _count(self) -> int:
        for file in self._files():
            try:
                lines = file.read_text().splitlines()
            except OSError:
                continue
            for name, _, value in (line.partition(" ") for line in lines):
                if name == "oom_kill" and value.strip().isdigit():
                    return int(value)
        return 0

    def _files(self) -> list[Path]:
        """Where the count may stand, the narrowest first."""
        groups = self._root / "sys/fs/cgroup"
        return [
            *(groups / path / "memory.events" for path in self._groups("")),
            groups / "memory.events",
            *(groups / "memory" / path / "memory.oom_control" for path in self._groups("memory")),
            groups / "memory/memory.oom_control",
            self._root / "proc/vmstat",
        ]

    def _groups(self, controller: str) -> list[str]:
        """This process's control groups of a controller; the one of cgroup v2 has none."""
        try:
            lines = (self._root / "proc/self/cgroup").read_text().splitlines()
        except OSError:
            return []
        parts = [line.split(":", 2) for line in lines if line.count(":") >= 2]
        return [path.lstrip("/") for _, names, path in parts if controller in names.split(",")]
