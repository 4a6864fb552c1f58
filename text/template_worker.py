"""A process that renders chat templates, which may take all memory or never end: ``python -m`` this module.

Standard input is a socket to the server. A job and its answer are each a length and data: that of a job is
from `marshal`, that of an answer a letter, ``T`` or ``E``, and the text or the error. A template that takes
too long ends the process.
"""

from __future__ import annotations

import contextlib
import marshal
import os
import resource
import signal
import socket
import struct
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

from turnout.core import limits
from turnout.core.errors import RequestError
from turnout.text.chat_template import ChatTemplate

__all__ = ["LENGTH", "Job", "receive"]

LENGTH = struct.Struct("<Q")
STATM = Path("/proc/self/statm")
"""This process's memory in pages, where the system tells it."""


class Job(NamedTuple):
    """A conversation to render; plain data."""

    source: str
    special_tokens: dict[str, str]
    messages: list[dict[str, Any]]
    options: dict[str, Any]
    """The arguments of `ChatTemplate.render`."""


def main() -> None:
    """Renders until the server closes its end."""
    server = socket.socket(fileno=os.dup(0))
    _bound_memory()
    with contextlib.suppress(ConnectionError):  # the server has been killed
        while (data := receive(server)) is not None:
            signal.setitimer(signal.ITIMER_PROF, limits.TEMPLATE_SECONDS.most)  # its signal ends the process
            answer = _answer(Job(*marshal.loads(data)))
            signal.setitimer(signal.ITIMER_PROF, 0)
            server.sendall(LENGTH.pack(len(answer)))
            server.sendall(answer)


def receive(source: socket.socket) -> bytes | None:
    """The next job or answer; None if the other end is closed."""
    head = _exactly(source, LENGTH.size)
    return None if head is None else _exactly(source, LENGTH.unpack(head)[0])


def _exactly(source: socket.socket, count: int) -> bytes | None:
    parts = bytearray()
    while len(parts) < count:
        part = source.recv(min(count - len(parts), 2**20))
        if not part:
            return None
        parts += part
    return bytes(parts)


def _bound_memory() -> None:
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if STATM.exists():
        size = int(STATM.read_text().split()[0]) * os.sysconf("SC_PAGE_SIZE")
        most = size + limits.TEMPLATE_MEMORY.whole
        resource.setrlimit(resource.RLIMIT_AS, (most, most))


def _answer(job: Job) -> bytes:
    try:
        text = _template(job.source, tuple(job.special_tokens.items())).render(job.messages, **job.options)
        if len(text) > limits.TEMPLATE_TEXT.whole:
            return _error(
                f"the chat template makes {len(text):,} characters of these messages; at most "
                f"{limits.TEMPLATE_TEXT.whole:,} are tokenized"
            )
        return b"T" + text.encode(errors="surrogatepass")
    except RequestError as error:
        return _error(str(error), error.param)
    except MemoryError:
        return _error(
            f"the chat template takes more than {limits.TEMPLATE_MEMORY.whole // 2**20} MiB to render these "
            "messages"
        )


def _error(message: str, param: str | None = "messages") -> bytes:
    return b"E" + marshal.dumps((message[:2000], param))


@lru_cache(4)
def _template(source: str, special_tokens: tuple[tuple[str, str], ...]) -> ChatTemplate:
    return ChatTemplate(source, dict(special_tokens))


if __name__ == "__main__":
    main()
