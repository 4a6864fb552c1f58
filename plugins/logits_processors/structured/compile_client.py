"""The engine's side of the compile process."""

from __future__ import annotations

import contextlib
import signal
import socket
import subprocess
import sys
import threading
import weakref
from collections.abc import Callable

from turnout.core.errors import Overloaded
from turnout.core.types.structured_outputs import StructuredOutputs
from turnout.plugins.logits_processors.structured.claims import Claim
from turnout.plugins.logits_processors.structured.frames import Job, Verdict, receive, send
from turnout.plugins.logits_processors.structured.vocabulary import Vocabulary

__all__ = ["TOO_LONG", "CompileProcess"]

MODULE = "turnout.plugins.logits_processors.structured.compile_process"
START_SECONDS = 120.0
"""How long the process may take to build the vocabulary's tables."""
STARTS = 3
"""How often it is started for a form: something may kill it while it starts."""
TOO_LONG = signal.SIGPROF
"""What kills a worker whose time is over."""
TIMEOUT_FACTOR = 10.0
"""A worker may take this many times its processor time, where others want the processors too."""
MAX_IDLE = 2
"""Workers that are kept for the next form."""


class CompileProcess:
    """Tries forms in workers; starts the process with the first form or before, and again should it die."""

    def __init__(self, vocabulary: Callable[[], Vocabulary]) -> None:
        """vocabulary: returns what the process needs; called at each start."""
        self._vocabulary = vocabulary
        self._lock = threading.Lock()
        self._process: _Process | None = None
        self._idle: list[socket.socket] = []
        weakref.finalize(self, _close, self._idle)

    def tried(
        self, form: StructuredOutputs, seconds: float, claim: Claim, *, last: bool = False
    ) -> Verdict | None:
        """Tries a form; None if the claim ended meanwhile. Takes up to `seconds` of processor time.

        last: let the worker take its time beside others, and end.
        """
        job = Job(form, seconds, last)
        verdict = self._by(self._worker(), job, claim)
        if verdict is None and not claim.ended:  # the process, or an idle worker, was gone
            verdict = self._by(self._new_worker(), job, claim)
            if verdict is None and not claim.ended:
                raise Overloaded("the process that compiles structured output has ended twice; try again")
        return verdict

    def warm_up(self) -> None:
        """Starts the process, and a worker, ahead of the first form. Raises Overloaded if that fails."""
        worker = self._worker()
        if not self._keep(worker):
            worker.close()

    def _by(self, worker: socket.socket, job: Job, claim: Claim) -> Verdict | None:
        """Has a worker try a form; None if it ended without a word, or the claim did."""
        verdict = None
        try:
            with claim.ends(lambda: _hang_up(worker)):
                worker.settimeout(TIMEOUT_FACTOR * job.seconds)
                send(worker, job)
                verdict = receive(worker, Verdict)
        except TimeoutError:
            verdict = Verdict(signal=TOO_LONG, last=True)
        except OSError:
            pass
        if verdict is None or verdict.last or not self._keep(worker):
            worker.close()
        return verdict

    def _keep(self, worker: socket.socket) -> bool:
        with self._lock:
            if len(self._idle) >= MAX_IDLE:
                return False
            self._idle.append(worker)
            return True

    def _worker(self) -> socket.socket:
        with self._lock:
            if self._idle:
                return self._idle.pop()
        return self._new_worker()

    def _new_worker(self) -> socket.socket:
        """Raises Overloaded if there is none to be had now."""
        try:
            return self._forked()
        except OSError as error:  # no descriptor, process or memory is left
            raise Overloaded(f"no process can be started to compile the form: {error}; try again") from error

    def _forked(self) -> socket.socket:
        ours, theirs = socket.socketpair()
        try:
            with theirs, self._lock:
                self._fork(theirs)
        except (OSError, Overloaded):
            ours.close()
            raise
        return ours

    def _fork(self, worker: socket.socket) -> None:
        """Has the process fork a worker; starts the process where it has ended."""
        if self._process is not None and self._process.fork(worker):
            return
        for _ in range(STARTS):
            self._process = _Process(self._vocabulary())
            if self._process.fork(worker):
                return
        raise Overloaded("the process that compiles structured output does not start; try again")


class _Process:
    """A running compile process."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        self._control, theirs = socket.socketpair()
        # -P: no file in the user's working folder may stand in for one of Turnout's modules.
        command = [sys.executable, "-P", "-m", MODULE]
        try:
            with theirs:
                process = subprocess.Popen(command, stdin=theirs.fileno())
        except OSError:
            self._control.close()
            raise
        self.end = weakref.finalize(self, _end, self._control, process)
        self._control.settimeout(START_SECONDS)
        try:
            send(self._control, vocabulary)
            self._control.recv(1)
        except OSError:
            pass  # `fork` will tell

    def fork(self, worker: socket.socket) -> bool:
        """Has the process fork a worker with this end of a socket. Returns whether the process lives."""
        try:
            socket.send_fds(self._control, [b"f"], [worker.fileno()])
        except OSError:
            return False
        return True


def _close(workers: list[socket.socket]) -> None:
    for worker in workers:
        worker.close()


def _end(control: socket.socket, process: subprocess.Popen[bytes]) -> None:
    control.close()
    process.kill()
    process.wait()


def _hang_up(worker: socket.socket) -> None:
    with contextlib.suppress(OSError):  # the worker may be gone
        worker.shutdown(socket.SHUT_RDWR)
