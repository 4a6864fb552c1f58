"""Renders chat templates in processes beside the server's, so that no template can hang or fill it."""

from __future__ import annotations

import marshal
import socket
import subprocess
import sys
import threading
import weakref
from collections.abc import Mapping, Sequence
from typing import Any

from turnout.core import limits
from turnout.core.errors import RequestError
from turnout.text.chat_template import ChatTemplate
from turnout.text.template_worker import LENGTH, receive

__all__ = ["TemplateProcesses"]

MODULE = "turnout.text.template_worker"
MAX_IDLE = 2
PATIENCE = 10.0
"""A template may take this many times its processor time, where others want the processors too."""


class TemplateProcesses:
    """Processes that render, started when they are needed. May be used from several threads."""

    def __init__(self) -> None:
        self._idle: list[_Worker] = []
        self._lock = threading.Lock()

    def render(self, template: ChatTemplate, messages: Sequence[Mapping[str, Any]], **options: Any) -> str:
        """As `ChatTemplate.render`. Raises RequestError too for what takes too much time or memory."""
        job = (template.source, template.special_tokens, [dict(message) for message in messages], options)
        try:
            data = marshal.dumps(job)
        except ValueError:
            message = "the messages are nested too deeply for the chat template"
            raise RequestError(message, "messages") from None
        worker = self._worker()
        answer = worker.answer(data)
        if answer is None:
            worker.end()
            raise RequestError(
                f"the chat template takes longer than {limits.TEMPLATE_SECONDS.whole} seconds, or too much "
                "memory, to render these messages",
                "messages",
            )
        self._keep(worker)
        if answer[:1] == b"T":
            return answer[1:].decode(errors="surrogatepass")
        message, param = marshal.loads(answer[1:])
        raise RequestError(message, param)

    def _worker(self) -> _Worker:
        with self._lock:
            while self._idle:
                worker = self._idle.pop()
                if worker.lives():
                    return worker
                worker.end()
        return _Worker()

    def _keep(self, worker: _Worker) -> None:
        with self._lock:
            if len(self._idle) < MAX_IDLE:
                self._idle.append(worker)
                return
        worker.end()


class _Worker:
    """A process that renders one conversation after the other."""

    def __init__(self) -> None:
        self._socket, theirs = socket.socketpair()
        # -P: no file in the user's working folder may stand in for one of Turnout's modules.
        command = [sys.executable, "-P", "-m", MODULE]
        with theirs:  # a session of its own: Ctrl-C in a terminal is for the server
            self._process = subprocess.Popen(command, stdin=theirs.fileno(), start_new_session=True)
        self._socket.settimeout(PATIENCE * limits.TEMPLATE_SECONDS.most)
        self.end = weakref.finalize(self, _end, self._socket, self._process)

    def lives(self) -> bool:
        return self._process.poll() is None

    def answer(self, job: bytes) -> bytes | None:
        """The answer to a job; None if the process ended or takes too long."""
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
