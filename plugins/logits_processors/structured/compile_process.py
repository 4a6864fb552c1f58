"""The process in which forms are compiled first: what crashes, hangs or fills memory there harms no request.

``python -m turnout.plugins.logits_processors.structured.compile_process``, with a socket as standard input::

    engine ──control──▶ this process: builds the vocabulary's tables, and forks for each socket it is sent
      │                     │ fork
      └─────socket──────▶ a worker: a job in, a verdict out

A fork shares the tables, so a new worker costs milliseconds, where a new process would take a second. When a
worker dies, this process says so on the worker's socket. All end when the engine closes its ends.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import socket
import sys
from collections.abc import Mapping
from typing import NoReturn

from llguidance import LLTokenizer

from turnout.core.process import begin_program
from turnout.plugins.logits_processors.structured.compile_worker import work
from turnout.plugins.logits_processors.structured.frames import Verdict, receive, send
from turnout.plugins.logits_processors.structured.vocabulary import Vocabulary

__all__ = ["main"]

NICE = 5
"""How much the engine goes before it where processors are short."""


def main() -> None:
    """Fork a worker for each socket that comes, until the engine closes its end."""
    begin_program()
    os.nice(NICE)
    control = socket.socket(fileno=os.dup(sys.stdin.fileno()))
    with contextlib.suppress(ConnectionError):  # the engine has been killed
        vocabulary = receive(control, Vocabulary)
        if vocabulary is not None:
            tables = vocabulary.tables()
            control.sendall(b"!")
            _Nursery(control, tables, vocabulary.specials).run()


class _Nursery:
    """The workers that live, each with the engine's socket to it."""

    def __init__(self, control: socket.socket, tables: LLTokenizer, specials: Mapping[str, int]) -> None:
        self._control = control
        self._tables = tables
        self._specials = specials
        self._workers: dict[int, socket.socket] = {}
        self._deaths, self._wakeup = socket.socketpair()
        self._deaths.setblocking(False)
        self._wakeup.setblocking(False)
        signal.set_wakeup_fd(self._wakeup.fileno(), warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)

    def run(self) -> None:
        while True:
            ready, _, _ = select.select([self._control, self._deaths], [], [])
            if self._deaths in ready:
                self._deaths.recv(4096)
                self._report_deaths()
            if self._control in ready:
                said, sockets, _, _ = socket.recv_fds(self._control, 1, 1)
                if not said:
                    signal.set_wakeup_fd(-1)  # its socket closes before the last workers end
                    return
                self._fork(socket.socket(fileno=sockets[0]))

    def _fork(self, engine: socket.socket) -> None:
        if pid := os.fork():
            self._workers[pid] = engine
        else:
            self._be_worker(engine)

    def _be_worker(self, engine: socket.socket) -> NoReturn:
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        for theirs in (self._control, self._deaths, self._wakeup, *self._workers.values()):
            theirs.close()
        nowhere = os.open(os.devnull, os.O_RDWR)
        for stream in range(3):  # the last words of a crash are reported instead
            os.dup2(nowhere, stream)
        try:
            work(engine, self._tables, self._specials)
        finally:
            os._exit(0)

    def _report_deaths(self) -> None:
        while self._workers:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if not pid:
                return
            with self._workers.pop(pid) as engine:
                if os.WIFSIGNALED(status):
                    _try_to_send(engine, Verdict(signal=os.WTERMSIG(status), last=True))


def _try_to_send(engine: socket.socket, verdict: Verdict) -> None:
    engine.setblocking(False)
    with contextlib.suppress(OSError):  # the engine has given the job up
        send(engine, verdict)


if __name__ == "__main__":
    main()
