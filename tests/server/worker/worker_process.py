"""Workers of the echo engine, each a process that listens at a loopback address of its own."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
from running_server import RunningServer

RUN = """
import sys
from turnout.config import EngineConfig
from turnout.core.logs import LogStyle
from turnout.core.errors import TurnoutError
from turnout.server.worker.run import run_worker
try:
    run_worker(EngineConfig(**eval(sys.argv[1])), sys.argv[2], sys.argv[3], LogStyle(), factory=sys.argv[4])
except TurnoutError as error:
    sys.exit(f"Error: {error}")
"""
FACTORY = "echo_engine:build"


class WorkerProcess:
    def __init__(self, listen: str, keys: Path, folder: Path, **config: Any) -> None:
        """`folder`: of the model."""
        given = repr({"model": str(folder), **config})
        command = [sys.executable, "-c", RUN, given, listen, str(keys), FACTORY]
        self.popen = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
        self.log, self.keys = "", keys
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        found = self.says(r"listening at (\S+)")
        self.url = found[1] if found else ""

    def _read(self) -> None:
        assert self.popen.stderr is not None
        with self.popen.stderr as log:
            for line in log:
                self.log += line

    def says(self, pattern: str, seconds: float = 20) -> re.Match[str] | None:
        """Waits for a line of its log."""
        deadline = time.monotonic() + seconds
        while (found := re.search(pattern, self.log)) is None:
            if self.popen.poll() is not None:
                self._reader.join(5)
                return re.search(pattern, self.log)
            assert time.monotonic() < deadline, self.log
            time.sleep(0.01)
        return found

    @property
    def engine(self) -> int:
        """The process id of its engine."""
        (child,) = psutil.Process(self.popen.pid).children()
        return child.pid

    def kill(self) -> None:
        """The worker and, as it follows, its engine."""
        self.popen.kill()
        self.popen.wait(10)

    def stop(self) -> int:
        if self.popen.poll() is None:
            os.kill(self.popen.pid, signal.SIGTERM)
        code = self.popen.wait(10)
        self._reader.join(5)
        return code


StartWorker = Callable[..., WorkerProcess]
Connect = Callable[..., RunningServer]
