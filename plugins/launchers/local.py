"""Engines on this machine, each a child process."""

from __future__ import annotations

import json
import shutil
import socket
import sys
import tempfile
from collections.abc import Sequence
from functools import cached_property
from itertools import count

from turnout.core.interfaces.launcher import EngineAddress, EngineOrder, LaunchedEngine, Launcher
from turnout.plugins.launchers.begun_file import BegunFile
from turnout.plugins.launchers.child import Child

__all__ = ["MAX_PATH_BYTES", "Local", "LocalEngine"]

ENGINE = "turnout.server.engine.main"
"""The module that an engine's process runs."""
MAX_PATH_BYTES = 100
"""Some systems allow a Unix socket's path only 103 bytes."""


class Local(Launcher):
    """Runs each engine in a child process of the server, with which it ends."""

    @cached_property
    def numbers(self) -> set[int]:
        """Those of the engines that live, by which they divide NUMA nodes."""
        return set()  # a launcher that derives from this one may have an __init__ of its own

    def launch(self, order: EngineOrder) -> LocalEngine:
        return LocalEngine(order, self)

    def command(self, order: EngineOrder, url: str) -> Sequence[str]:
        """The command that runs an engine, which reads its configuration from standard input."""
        return [
            # -P: no file in the user's working folder may stand in for one of Turnout's modules.
            *(sys.executable, "-P", "-m", ENGINE, url),
            *("--factory", order.factory, "--log-level", order.log_level),
            f"--log-format={order.log_format}",
            *(f"--arm={order.arm}", f"--replica={order.replica}"),
        ]


class LocalEngine(LaunchedEngine):
    """A child process, and the folder of the socket to it."""

    def __init__(self, order: EngineOrder, launcher: Local) -> None:
        """Raises OSError if the system has no room for it."""
        super().__init__()
        self._numbers = launcher.numbers
        self._number = next(number for number in count() if number not in self._numbers)
        self._folder = tempfile.mkdtemp(prefix="turnout-")  # readable by this user alone
        begun = None
        try:
            url = _url(self._folder)
            begun = BegunFile()
            self._child = Child([*launcher.command(order, url), f"--begun={begun.fd}"], self.death, begun)
        except OSError:
            self.connected()
            if begun is not None:
                begun.close()
            raise
        self._numbers.add(self._number)
        self._over = False
        self.address.set_result(EngineAddress(url))

    @property
    def pid(self) -> int:
        return self._child.pid

    def configure(self, config: str) -> None:
        given = json.loads(config)
        if given.get("cpu_engines", 1) > 1 and given.get("cpu_engine") is None:
            config = json.dumps(given | {"cpu_engine": self._number})
        self._child.write_line(config)

    def connected(self) -> None:
        """Removes the socket's name: once the engine has connected, nothing needs it."""
        shutil.rmtree(self._folder, ignore_errors=True)

    def kill(self) -> None:
        self._child.kill()
        if not self._over:  # else another engine may have the number
            self._over = True
            self._numbers.discard(self._number)
        self.connected()


def _url(folder: str) -> str:
    """A Unix socket in `folder`, or a free port of loopback TCP where there are no Unix sockets."""
    path = f"{folder}/engine"
    if hasattr(socket, "AF_UNIX") and len(path.encode()) <= MAX_PATH_BYTES:
        return f"ipc://{path}"
    with socket.create_server(("127.0.0.1", 0)) as free:
        return f"tcp://127.0.0.1:{free.getsockname()[1]}"
