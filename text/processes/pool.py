"""Processes that do jobs which may take all memory or never end."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
import threading
import weakref
from collections.abc import Callable

from turnout.core.errors import Overloaded
from turnout.text.processes.worker import SECONDS, receive, send

__all__ = ["MAX_IDLE", "ProcessPool"]

MAX_IDLE = 2
PATIENCE = 10.0
"""A job may take this many times its processor time, where others want the processors too."""
ATTEMPTS = 2
"""How often a job is done whose process is killed, which need not be its fault."""
STARTING = 60.0
"""Seconds in which a process is ready."""
ENDING = 5.0
"""Seconds in which a process ends that has closed its socket."""


class ProcessPool:
    """Processes of one module, started when they are needed. May be used from several threads."""

    def __init__(self, module: str, what: str, beginning: Callable[[], bytes] = bytes) -> None:
        """what: the processes' name in errors. beginning: returns what each begins with."""
        self._module = module
        self._what = what
        self._beginning = beginning
        self._idle: list[_Worker] = []
        self._lock = threading.Lock()

    def answer(self, job: bytes, seconds: float) -> bytes | None:
        """A process's answer to a job; None if the job took too much.

        seconds: the processor time it may take. Raises Overloaded if the system has no room for a process.
        """
        for _ in range(ATTEMPTS):
            worker = self._worker()
            answer = worker.answer(job, seconds)
            if answer is not None:
                self._keep(worker)
                return answer
            killed = worker.was_killed()
            worker.end()
            if not killed:
                break
        return None

    def _worker(self) -> _Worker:
        with self._lock:
            while self._idle:
                worker = self._idle.pop()
                if worker.lives():
                    return worker
                worker.end()
        try:
            return _Worker(self._module, self._beginning())
        except OSError as error:
            reason = error.strerror or str(error)
            raise Overloaded(f"no process for {self._what} can be started: {reason}") from error

    def _keep(self, worker: _Worker) -> None:
        with self._lock:
            if len(self._idle) < MAX_IDLE:
                self._idle.append(worker)
                return
        worker.end()


class _Worker:
    """A process that does one job after the other."""

    def __init__(self, module: str, beginning: bytes) -> None:
        """Raises OSError if the system has no room for it."""
        self._socket, theirs = socket.socketpair()
        # -P: no file in the user's working folder may stand in for one of Turnout's modules.
        command = [sys.executable, "-P", "-m", module]
        try:
            with theirs:  # a session of its own: Ctrl-C in a terminal is for the server
                self._process = subprocess.Popen(command, stdin=theirs.fileno(), start_new_session=True)
        except OSError:
            self._socket.close()
            raise
        self.end = weakref.finalize(self, _end, self._socket, self._process)
        self._socket.settimeout(STARTING)
        try:
            send(self._socket, beginning)
            ready = receive(self._socket)
        except OSError:
            self.end()
            raise
        if ready is None and not self.was_killed():
            self.end()
            raise OSError("it ended while it started")

    def lives(self) -> bool:
        return self._process.poll() is None

    def was_killed(self) -> bool:
        """Whether the process has ended by a signal, and not by that of its clock."""
        try:
            status = self._process.wait(ENDING)
        except subprocess.TimeoutExpired:  # it hangs
            return False
        return status < 0 and status != -signal.SIGPROF

    def answer(self, job: bytes, seconds: float) -> bytes | None:
        """The answer to a job; None if the process has ended or takes too long."""
        self._socket.settimeout(PATIENCE * seconds)
        try:
            send(self._socket, SECONDS.pack(seconds), job)
            return receive(self._socket)
        except OSError:
            return None


def _end(server: socket.socket, process: subprocess.Popen[bytes]) -> None:
    server.close()
    process.kill()
    process.wait()
