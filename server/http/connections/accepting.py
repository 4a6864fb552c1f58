"""Accepts as many connections as there are file descriptors for.

asyncio by itself accepts connections until no descriptor is left. Then neither a file nor another engine can
be opened, requests in service end with 500, and the log gets thousands of tracebacks a second. Here, the
connection that has waited longest for its client makes room for the next. While every connection has a
request in service, further ones wait in the system's queue.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import resource
import socket
import ssl
from collections.abc import Callable, Sized

from turnout.config import ServerConfig
from turnout.core.clock import monotonic
from turnout.core.errors import TurnoutError
from turnout.server.http.connections.tls import Certificates
from turnout.server.http.connections.waiting import GRACE_SECONDS, WaitingConnections

__all__ = ["AT_ONCE", "Arriving", "check_open_files", "take_connections", "usable_descriptors"]

logger = logging.getLogger(__name__)

MAX_DESCRIPTORS = 65536
"""More than one process can serve, and few enough for every system to grant."""
RESERVED_DESCRIPTORS = 64
"""Descriptors for everything but connections; two engines and their successors take half of these."""
LEAST_CONNECTIONS = 16
"""With fewer, a browser and a monitor take turns. The server refuses to start then."""
HANDSHAKE_SECONDS = 10.0
"""Time that a client has to begin TLS."""
POLL_SECONDS = 0.05
"""Seconds until it is tried again."""
AT_ONCE = 32
"""Connections that are accepted in a turn of the event loop, in 3 ms: a hundred may come at once, and the
last of them may ask for ``/health``. At most a 16th of all that may be open, since for a few turns such a
connection counts twice: as one that arrives, and as one that is open."""


def usable_descriptors() -> int:
    """The descriptors that connections may take, after raising the process's limit as far as allowed."""
    return max(1, _open_files() - RESERVED_DESCRIPTORS)


def check_open_files(config: ServerConfig) -> None:
    """Raises TurnoutError where `ulimit -n` leaves hardly any connection.

    Warns where it leaves fewer than the user has asked for.
    """
    allowed, wanted = _open_files(), math.ceil(config.max_connections / config.api_workers)
    usable, needed = allowed - RESERVED_DESCRIPTORS, RESERVED_DESCRIPTORS + min(LEAST_CONNECTIONS, wanted)
    if allowed < needed:
        raise TurnoutError(
            f"a process may open {allowed} files here, but the server needs {needed} or more, "
            f"{RESERVED_DESCRIPTORS} of them for its engines; raise the limit of open files "
            "(`ulimit -n 4096`, or LimitNOFILE in a systemd unit)"
        )
    if usable < wanted and "max_connections" in config.model_fields_set:
        logger.warning(
            "--max-connections %d is cut to %d, as a process may open %d files here; raise the limit of open "
            "files (`ulimit -n`) for more",
            config.max_connections,
            usable * config.api_workers,
            allowed,
        )


def _open_files() -> int:
    """How many files the process may open, after raising its limit as far as allowed.

    Shells set the limit low (``ulimit -n`` is often 1024, on macOS 256) for the sake of programs that use
    `select`.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    limit = MAX_DESCRIPTORS if hard == resource.RLIM_INFINITY else min(hard, MAX_DESCRIPTORS)
    if soft != resource.RLIM_INFINITY and soft < limit:
        with contextlib.suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (limit, hard))
        soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return MAX_DESCRIPTORS if soft == resource.RLIM_INFINITY else soft


async def take_connections(
    listener: socket.socket,
    protocol: Callable[[], asyncio.Protocol],
    connections: Sized,
    most: int,
    waiting: WaitingConnections,
    certificates: Certificates | None = None,
    at_once: int = AT_ONCE,
    arriving: Arriving | None = None,
) -> None:
    """Accept connections until cancelled; with `certificates`, they are encrypted.

    `protocol` makes the protocol of a connection, which is in `connections` for as long as the connection
    lasts, and in `waiting` while it may be closed to make room. `at_once`: as `AT_ONCE`, at most. `arriving`:
    shared with what listens at other addresses.
    """
    loop = asyncio.get_running_loop()
    listener.setblocking(False)
    arriving = Arriving() if arriving is None else arriving
    warned = False
    at_once = max(1, min(at_once, most // 16))
    while True:
        while len(connections) + len(arriving) >= most:
            if not warned:
                warned = True
                logger.warning(
                    "%d connections are open, the most that --max-connections and `ulimit -n` allow; idle "
                    "ones are closed, and more wait",
                    most,
                )
            # A connection that was given up is gone after the next turn of the loop.
            gave_up = waiting.give_up_oldest() or arriving.give_up_oldest()
            await asyncio.sleep(0 if gave_up else POLL_SECONDS)
        room = min(at_once, most - len(connections) - len(arriving))
        try:
            connection, address = await loop.sock_accept(listener)
            while True:
                _send_at_once(connection)
                tls = None if certificates is None else certificates.context
                arriving.add(asyncio.create_task(_arrive(protocol, connection, address, tls)))
                if room <= 1:
                    break
                room -= 1
                connection, address = listener.accept()
                connection.setblocking(False)
        except BlockingIOError:  # no other has come
            pass
        except OSError:  # the client has left already, or other processes have the system's last descriptor
            await asyncio.sleep(POLL_SECONDS)
            continue
        # `sock_accept` does not wait while connections keep coming: all else would.
        await asyncio.sleep(0)


class Arriving:
    """The connections that are being accepted: those of clients that are slow to begin TLS may be many."""

    def __init__(self) -> None:
        self._since: dict[asyncio.Task[None], float] = {}
        """The oldest comes first."""

    def __len__(self) -> int:
        return len(self._since)

    def add(self, task: asyncio.Task[None]) -> None:
        self._since[task] = monotonic()
        task.add_done_callback(self._since.pop)

    def give_up_oldest(self) -> bool:
        """Close the one that has waited longest, if long enough; returns whether there was one."""
        task, since = next(iter(self._since.items()), (None, 0.0))
        if task is None or monotonic() - since < GRACE_SECONDS:
            return False
        return task.cancel()


async def _arrive(
    protocol: Callable[[], asyncio.Protocol],
    connection: socket.socket,
    address: object,
    tls: ssl.SSLContext | None,
) -> None:
    loop = asyncio.get_running_loop()
    if tls is None:
        await loop.connect_accepted_socket(protocol, connection)
        return
    try:
        await loop.connect_accepted_socket(
            protocol, connection, ssl=tls, ssl_handshake_timeout=HANDSHAKE_SECONDS
        )
    except ssl.SSLError as error:  # the client speaks no TLS, or has no certificate that is accepted
        logger.info("a TLS handshake with %s failed: %s", _named(address), error)
    except OSError as error:
        logger.debug("a TLS handshake with %s did not end: %s", _named(address), error)


def _named(address: object) -> str:
    """An address as the log has it: of a port's client, or of a Unix socket's."""
    return f"{address[0]} port {address[1]}" if isinstance(address, tuple) else "a Unix socket's client"


def _send_at_once(connection: socket.socket) -> None:
    """Lets the system send each write as it comes.

    A response is written in two parts. Without this, the second waits until the client has acknowledged the
    first, which takes it 40 ms. asyncio sets this for sockets that name their protocol, as accepted ones do
    not.
    """
    if connection.family in (socket.AF_INET, socket.AF_INET6):
        with contextlib.suppress(OSError):  # the client has left
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
