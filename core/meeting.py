"""Where ranks of an engine find each other: on one machine a file without a name, between machines a port."""

from __future__ import annotations

import os
import socket
import tempfile
from dataclasses import dataclass
from urllib.parse import urlsplit

from turnout.core.errors import ConfigError

__all__ = ["Meeting"]


@dataclass(frozen=True)
class Meeting:
    """A place that all ranks of one engine know; `str()` of it is for a command line, `parse` reads that.

    On one machine it is a file in memory, which rank 0 makes and the others inherit as a descriptor. It has
    no name, so nothing of it is left when all ranks have ended, however they did.
    """

    descriptor: int = -1
    """Of the file; -1: ranks meet at a port."""
    host: str = ""
    port: int = 0
    """Where rank 0 listens."""
    listener: int = -1
    """In rank 0: the descriptor of the socket that listens there; whatever serves the ranks takes it over."""
    own: str = ""
    """The address of this process's machine, by which the others reach it; empty: the host's name."""

    @classmethod
    def on_this_machine(cls) -> Meeting:
        """Makes a file for ranks on this machine. It is closed by `close`, in each rank."""
        if hasattr(os, "memfd_create"):
            return cls(os.memfd_create("turnout-ranks", os.MFD_CLOEXEC))
        with tempfile.TemporaryFile(prefix="turnout-ranks-") as file:
            return cls(os.dup(file.fileno()))

    @classmethod
    def at(cls, own: str) -> Meeting:
        """Makes a port for ranks on several machines, in rank 0. own: as above. Raises OSError."""
        family = socket.AF_INET6 if ":" in own else socket.AF_INET
        with socket.create_server((own, 0), family=family, backlog=128) as server:
            return cls(host=own, port=server.getsockname()[1], listener=server.detach(), own=own)

    @classmethod
    def parse(cls, text: str) -> Meeting:
        """Reads ``fd:NUMBER`` or ``tcp://HOST:PORT``. Raises ConfigError for anything else."""
        kind, _, rest = text.partition(":")
        if kind == "fd" and rest.isdecimal():
            return cls(int(rest))
        try:
            url = urlsplit(text)
            if url.scheme == "tcp" and url.hostname and url.port:
                return cls(host=url.hostname, port=url.port)
        except ValueError:
            pass
        raise ConfigError(f"ranks cannot meet at {text!r}; use tcp://HOST:PORT or fd:NUMBER")

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"tcp://{host}:{self.port}" if self.host else f"fd:{self.descriptor}"

    @property
    def path(self) -> str:
        """A path under which this process can open the file again."""
        folder = "/proc/self/fd" if os.path.isdir("/proc/self/fd") else "/dev/fd"
        return f"{folder}/{self.descriptor}"

    def lengthen(self, length: int) -> None:
        """Makes the file at least so long. What is not written of it takes no memory, and reads as zeros."""
        if os.fstat(self.descriptor).st_size < length:
            # All ranks do this at the same time; none makes it shorter.
            os.pwrite(self.descriptor, bytes(1), length - 1)

    def close(self) -> None:
        """Closes the file in this process; a port is closed by what took it over."""
        if not self.host:
            os.close(self.descriptor)
