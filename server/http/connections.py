"""Taking connections: as many as there are descriptors for. The others wait in the system's queue.

asyncio takes them until there are none left, and then neither a file nor another engine can be opened:
requests that were being served ended with 500, and the log got some thousand tracebacks a second.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import resource
import socket
from collections.abc import Callable, Sized

__all__ = ["take_connections", "usable_descriptors"]

logger = logging.getLogger(__name__)

ENOUGH = 65536
"""Descriptors: more than one process can serve, and few enough for every system to grant."""
RESERVED = 64
"""Descriptors for everything else: two engines and their successors take half of that."""
POLL_SECONDS = 0.05
"""Seconds until it is tried again."""


def usable_descriptors() -> int:
    """What connections may take, after raising the process's limit as far as it may go.

    Shells set it low (``ulimit -n`` is often 1024, on macOS 256) for the sake of programs that use `select`.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    limit = ENOUGH if hard == resource.RLIM_INFINITY else min(hard, ENOUGH)
    if soft != resource.RLIM_INFINITY and soft < limit:
        with contextlib.suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (limit, hard))
        soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return max(1, (ENOUGH if soft == resource.RLIM_INFINITY else soft) - RESERVED)


async def take_connections(
    listener: socket.socket, protocol: Callable[[], asyncio.Protocol], connections: Sized, most: int
) -> None:
    """Until cancelled. `protocol` makes one connection's; it is in `connections` from when it is made to
    when it is lost.
    """
    loop = asyncio.get_running_loop()
    listener.setblocking(False)
    arriving: set[asyncio.Task[object]] = set()
    told = False
    while True:
        while len(connections) + len(arriving) >= most:
            if not told:
                told = True
                logger.warning("%d connections are open, the most that `ulimit -n` allows; more wait", most)
            await asyncio.sleep(POLL_SECONDS)
        try:
            connection, _ = await loop.sock_accept(listener)
        except OSError:  # the client has left already, or other processes have the system's last descriptor
            await asyncio.sleep(POLL_SECONDS)
            continue
        task = asyncio.create_task(loop.connect_accepted_socket(protocol, connection))
        arriving.add(task)
        task.add_done_callback(arriving.discard)
