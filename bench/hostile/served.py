"""A served turnout-tiny to be attacked."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import psutil

__all__ = ["served"]


@contextmanager
def served(*flags: str) -> Iterator[tuple[psutil.Process, int]]:
    """The server's process and its port."""
    command = [sys.executable, "-m", "turnout", "serve", "turnout-tiny", "--port", "0", *flags]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        try:
            line = next(line for line in server.stdout if "Turnout serving" in line)
            yield psutil.Process(server.pid), int(line.rpartition(":")[2])
        finally:
            server.kill()
