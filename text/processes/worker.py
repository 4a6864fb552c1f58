"""What the processes of a pool have in common: they do one job after the other, in little time and memory.

Standard input is a socket to the server. All that passes are lengths and data: first what the process begins
with, which it answers with nothing; then jobs, each with its seconds of processor time before it, and their
answers. A job that takes too long ends the process.
"""

from __future__ import annotations

import contextlib
import os
import resource
import signal
import socket
import struct
from collections.abc import Callable
from pathlib import Path

from turnout.core.process import begin_program

__all__ = ["SECONDS", "receive", "send", "serve"]

LENGTH = struct.Struct("<Q")
SECONDS = struct.Struct("<d")
STATM = Path("/proc/self/statm")
"""This process's memory in pages, where the system tells it."""

Work = Callable[[bytes], bytes]


def serve(begin: Callable[[bytes], Work], memory: int) -> None:
    """Does jobs until the server closes its end.

    begin: makes of what comes first the function that does a job. memory: bytes that jobs may take.
    """
    begin_program()
    server = socket.socket(fileno=os.dup(0))
    with contextlib.suppress(ConnectionError):  # the server has been killed
        first = receive(server)
        if first is None:
            return
        work = begin(first)
        _bound_memory(memory)
        send(server, b"")
        while (job := receive(server)) is not None:
            (seconds,) = SECONDS.unpack_from(job)
            signal.setitimer(signal.ITIMER_PROF, seconds)  # its signal ends the process
            answer = work(job[SECONDS.size :])
            signal.setitimer(signal.ITIMER_PROF, 0)
            send(server, answer)


def send(target: socket.socket, *parts: bytes) -> None:
    """Sends the parts as one message."""
    target.sendall(LENGTH.pack(sum(map(len, parts))))
    for part in parts:
        target.sendall(part)


def receive(source: socket.socket) -> bytes | None:
    """The next message; None if the other end is closed."""
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


def _bound_memory(memory: int) -> None:
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if STATM.exists():
        size = int(STATM.read_text().split()[0]) * os.sysconf("SC_PAGE_SIZE")
        resource.setrlimit(resource.RLIMIT_AS, (size + memory, size + memory))
