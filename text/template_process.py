"""Renders chat templates in processes beside the server's, so that no template can hang or fill it."""

from __future__ import annotations

import marshal
import signal
import socket
import subprocess
import sys
import threading
import weakref
from collections.abc import Mapping, Sequence
from typing import Any

from turnout.core import limits
from turnout.core.errors import Overloaded, RequestError
from turnout.text.chat_template import ChatTemplate
from turnout.text.template_worker import LENGTH, receive

__all__ = ["TemplateProcesses"]

MODULE = "turnout.text.template_worker"
MAX_IDLE = 2
PATIENCE = 10.0
"""A template may take this many times its processor time, where others want the processors too."""
ATTEMPTS = 2
"""How often a conversation is rendered whose process is killed, which need not be its fault."""
ENDING = 5.0
"""Seconds in which a process ends that has closed its socket."""


class TemplateProcesses:
    """Processes that render, started when they are needed. May be used from several threads."""

    def __init__(self) -> None:
        self._idle: list[_Worker] = []
        self._lock = threading.Lock()

    def render(self, template: ChatTemplate, messages: Sequence[Mapping[str, Any]], **options: Any) -> str:
        """As `ChatTemplate.render`. Raises RequestError too for what takes too much time or memory.

        Raises Overloaded if the system has no room for another process.
        """
        job = (template.source, template.special_tokens, [dict(message) for message in messages], options)
        try:
            data = marshal.dumps(job)
        except ValueError:
            message = "the messages are nested too deeply for the chat template"
            raise RequestError(message, "messages") from None
        answer = self._answer(data)
        if answer is None:
            raise RequestError(
                f"the chat template takes longer than {limits.TEMPLATE_SECONDS.whole} seconds, or too much "
                "memory, to render these messages",
                "messages",
            )
        if answer[:1] == b"T":
            return answer[1:].decode(errors="surrogatepass")
        message, param = marshal.loads(answer[1:])
        raise RequestError(message, param)

    def _answer(self, data: bytes) -> bytes | None:
        """A process's answer to a job; None if the job took too much."""
        for _ in range(ATTEMPTS):
            worker = self._worker()
            answer = worker.answer(data)
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
            return _Worker()
        except OSError as error:
            raise Overloaded(f"no process for chat templates can be started: {error.strerror}") from error

    def _keep(self, worker: _Worker) -> None:
        with self._lock:
            if len(self._idle) < MAX_IDLE:
                self._idle.append(worker)
                return
        worker.end()


class _Worker:
    """A process that renders one conversation after the other."""

    def __init__(self) -> None:
        """Raises OSError if the system has no room for it."""
        self._socket, theirs = socket.socketpair()
        # -P: no file in the user's working folder may stand in for one of Turnout's modules.
        command = [sys.executable, "-P", "-m", MODULE]
        try:
            with theirs:  # a session of its own: Ctrl-C in a terminal is for the server
                self._process = subprocess.Popen(command, stdin=theirs.fileno(), start_new_session=True)
        except OSError:
            self._socket.close()
            raise
        self._socket.settimeout(PATIENCE * limits.TEMPLATE_SECONDS.most)
        self.end = weakref.finalize(self, _end, self._socket, self._process)

    def lives(self) -> bool:
        return self._process.poll() is None

    def was_killed(self) -> bool:
        """Whether the process has ended by a signal, and not by that of its clock."""
        try:
            status = self._process.wait(ENDING)
        except subprocess.TimeoutExpired:  # it hangs
            return False
        return status < 0 and status != -signal.SIGPROF

    def answer(self, job: bytes) -> bytes | None:
        """The answer to a job; None if the process has ended or takes too long."""
        try:
            self._socket.sendall(LENGTH.pack(len(job)))
            self._socket.sendall(job)
            return receive(self._socket)
        except OSError:
            return None


def _end(server: socket.socket, process: subprocess.Popen[bytes]) -> None:
    server.close()
    process.kill()
    process.wait()
