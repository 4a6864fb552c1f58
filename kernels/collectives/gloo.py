"""Collectives by gloo, over sockets: they need no compiler, and ranks may be on several machines."""

from __future__ import annotations

import os
import socket
import stat
from contextlib import suppress

from turnout.core.meeting import Meeting
from turnout.kernels.collectives.over_torch import OverTorch
from turnout.kernels.collectives.torch_groups import gloo_group

__all__ = ["Gloo"]


class Gloo(OverTorch):
    """Implements Collective."""

    name = "gloo"

    def __init__(self, meeting: Meeting, rank: int, size: int, group: int = 0) -> None:
        """Raises CollectiveError where a rank does not come."""
        before = _connections() if meeting.host else {}
        super().__init__(gloo_group(meeting, rank, size, group), rank, size)
        self._connections = {} if not meeting.host else dict(_connections().items() - before.items())

    def abort(self) -> None:
        """Breaks the connections to other machines, since one that has vanished breaks none itself. On one
        machine a wait ends when the process that is waited for has."""
        here = _connections()
        for descriptor, inode in self._connections.items():
            if here.get(descriptor) == inode:
                with suppress(OSError), socket.socket(fileno=os.dup(descriptor)) as connection:
                    connection.shutdown(socket.SHUT_RDWR)


def _connections() -> dict[int, int]:
    """Returns the descriptors of this process that are TCP connections, each with its inode."""
    found = {}
    for descriptor in map(int, os.listdir("/proc/self/fd")):
        with suppress(OSError):
            status = os.fstat(descriptor)
            if stat.S_ISSOCK(status.st_mode) and _is_tcp_connection(descriptor):
                found[descriptor] = status.st_ino
    return found


def _is_tcp_connection(descriptor: int) -> bool:
    """Says so of a socket. Of another file, the duplicate would stay open: no socket takes it over."""
    with socket.socket(fileno=os.dup(descriptor)) as each:
        listens = each.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN)  # gloo ends the process for these
        tcp = each.family in (socket.AF_INET, socket.AF_INET6) and each.type == socket.SOCK_STREAM
        return tcp and not listens
