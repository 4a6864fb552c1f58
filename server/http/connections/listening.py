"""Where the server listens: a port, or a Unix socket; encrypted or not."""

from __future__ import annotations

import errno
import logging
import os
import socket
import stat
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from turnout.config import ServerConfig
from turnout.core.errors import TurnoutError
from turnout.server.http.connections.tls import Certificates, certificates

__all__ = ["BACKLOG", "Listener", "listening"]

logger = logging.getLogger(__name__)

BACKLOG = 2048
ANY_IPV6 = "::"
"""All interfaces, by IPv6 and by IPv4."""
NOT_HERE = (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT)
"""Of an address that this machine lacks, as it has none by IPv6 where that is switched off."""
CONNECTABLE = 0o666
"""Who may enter the folder of a Unix socket may connect, as to a port; a proxy is often another user."""


@dataclass(frozen=True)
class Listener:
    """Where clients connect."""

    sockets: Sequence[socket.socket]
    """One for each address of the host: a name such as ``localhost`` may have one by IPv6 and one by IPv4."""
    url: str
    """What clients are given: ``http://HOST:PORT``, or ``unix:PATH``."""
    certificates: Certificates | None = None
    """With them, connections are encrypted."""

    def close(self) -> None:
        for each in self.sockets:
            each.close()


@contextmanager
def listening(config: ServerConfig) -> Iterator[Listener]:
    """Listens until the block is left. Raises TurnoutError where that is not possible.

    It comes before the model is loaded, so that a port in use, or a bad certificate, is told at once.
    """
    read = certificates(config)
    if read is not None and read.fault:
        logger.warning("%s", read.fault)
    if config.uds is not None:
        with _at_path(Path(config.uds)) as listener:
            yield Listener([listener], f"unix:{config.uds}", read)
        return
    with ExitStack() as opened:
        sockets = [opened.enter_context(each) for each in _at_port(config.host, config.port)]
        host = f"[{config.host}]" if ":" in config.host else config.host
        scheme = "http" if read is None else "https"
        yield Listener(sockets, f"{scheme}://{host}:{sockets[0].getsockname()[1]}", read)


def _at_port(host: str, port: int) -> list[socket.socket]:
    try:
        return _at_addresses(host, port)
    except OSError as error:
        reason = os.strerror(error.errno) if error.errno and error.errno > 0 else error.strerror
        other = "--port" if error.errno in (errno.EADDRINUSE, errno.EACCES) else "--host"
        raise TurnoutError(
            f"cannot listen on {host} port {port}: {reason}; choose another with {other}"
        ) from None
    except UnicodeError as error:  # from Python's encoding of the host name
        raise TurnoutError(
            f"{host!r} is not a valid host name: {error}; choose another with --host"
        ) from None


def _at_addresses(host: str, port: int) -> list[socket.socket]:
    """Sockets of one port at all addresses of a host that this machine has. Raises OSError, also where it has
    none."""
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    both = host == ANY_IPV6 and socket.has_dualstack_ipv6()
    sockets: list[socket.socket] = []
    lacking: OSError | None = None
    with ExitStack() as opened:
        for family, address in dict.fromkeys((family, address) for family, _, _, _, address in found):
            at = (address[0], port, *address[2:])
            try:
                made = socket.create_server(at, family=family, backlog=BACKLOG, dualstack_ipv6=both)
            except OSError as error:
                if error.errno not in NOT_HERE:
                    raise
                lacking = lacking or error
            else:
                sockets.append(opened.enter_context(made))
                port = made.getsockname()[1]
        if lacking is not None and not sockets:
            raise lacking
        opened.pop_all()
    return sockets


# ------------------------------------------------------------------ Unix sockets


@contextmanager
def _at_path(path: Path) -> Iterator[socket.socket]:
    """A Unix socket, whose file is gone when the block is left."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
        try:
            _remove_stale(path)
            listener.bind(str(path))
            path.chmod(CONNECTABLE)
            listener.listen(BACKLOG)
        except OSError as error:
            why = error.strerror or str(error)
            raise TurnoutError(f"cannot listen on {path}: {why}; choose another path with --uds") from None
        own = path.stat().st_ino
        try:
            yield listener
        finally:
            with suppress(OSError):
                if path.stat().st_ino == own:
                    path.unlink()


def _remove_stale(path: Path) -> None:
    """Removes the socket of a server that has died. Raises TurnoutError for any other file."""
    if not path.exists():
        return
    if not stat.S_ISSOCK(path.stat().st_mode):
        raise TurnoutError(f"cannot listen on {path}: it is a file, and no socket; choose another with --uds")
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe, suppress(BlockingIOError):
        probe.setblocking(False)  # one that hangs has a full queue, in which this would wait
        try:
            probe.connect(str(path))
        except ConnectionRefusedError:
            path.unlink()
            return
    raise TurnoutError(f"cannot listen on {path}: another server listens there; choose another with --uds")
