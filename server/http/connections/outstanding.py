"""How many bytes of what was written to a connection its client has not taken yet.

That a transport may write again says too little of a client that reads slowly: Linux calls a socket writable
once a third of its send buffer is free, which it lets grow to several MB.
"""

from __future__ import annotations

import asyncio
import fcntl
import socket
import struct
import sys

__all__ = ["outstanding_bytes"]

SIOCOUTQ = 0x5411
"""Linux, as an ioctl: bytes that were written to a socket and that the other end has not acknowledged."""
SO_NWRITE = 0x1024
"""macOS, as an option of a socket: the same."""


def outstanding_bytes(transport: asyncio.Transport) -> int:
    """Returns the bytes that wait in the transport and in the system's send buffer, as far as it tells.

    With TLS, those that are encrypted already and wait for room in the send buffer are left out. They enter
    it only when the client has read.
    """
    return transport.get_write_buffer_size() + _in_system(transport.get_extra_info("socket"))


def _in_system(connection: socket.socket | None) -> int:
    """Returns 0 where the connection is over."""
    if connection is None or connection.fileno() < 0:
        return 0
    try:
        if sys.platform == "linux":
            size: int = struct.unpack("i", fcntl.ioctl(connection.fileno(), SIOCOUTQ, bytes(4)))[0]
            return size
        if sys.platform == "darwin":
            return connection.getsockopt(socket.SOL_SOCKET, SO_NWRITE)
    except OSError:  # the client has left
        pass
    return 0
