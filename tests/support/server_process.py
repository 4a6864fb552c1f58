"""A server in a process of its own."""

from __future__ import annotations

import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

from running_server import FACTORY, eventually

__all__ = ["ServerProcess"]


class ServerProcess:
    """The server that a script starts, what it says, and its engines' processes.

    `arguments` are the script's, with the engine's factory after them; `options` are `subprocess.Popen`'s.
    """

    def __init__(self, script: str, *arguments: object, **options: Any) -> None:
        command = [sys.executable, "-c", script, *map(str, arguments), FACTORY]
        self.popen = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, **options
        )
        self.output: list[str] = []
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def _read(self) -> None:
        assert self.popen.stdout is not None
        with self.popen.stdout as lines:
            self.output += lines

    def text(self) -> str:
        return "".join(self.output)

    def url(self) -> str:
        eventually(lambda: any("Turnout serving" in line for line in self.output), 60)
        return self.output[-1].split()[-1]

    def children(self) -> list[int]:
        found = Path(f"/proc/{self.popen.pid}/task/{self.popen.pid}/children")
        return [int(pid) for pid in found.read_text().split()]

    def engine(self) -> int:
        """Pid of the one child it has."""
        eventually(self.children, 15)
        (pid,) = self.children()
        return pid

    def wait(self) -> int:
        code = self.popen.wait(20)
        self._reader.join()
        return code

    def end(self) -> None:
        """However it stands."""
        self.popen.kill()
        self.wait()
