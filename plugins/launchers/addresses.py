"""Addresses of workers, ``tcp://HOST:PORT``, as users write them and as ZeroMQ takes them."""

from __future__ import annotations

import errno
import re
import socket

__all__ = ["is_address", "resolved"]

URL = re.compile(r"tcp://(\[[0-9a-fA-F:.]+\]|[^\s/:]+):(\d{1,5})")
LAST_PORT = 65535


def is_address(text: str) -> bool:
    """Says whether a worker may listen there."""
    found = URL.fullmatch(text)
    return found is not None and 1 <= int(found[2]) <= LAST_PORT


def resolved(url: str) -> str:
    """Returns the address for ZeroMQ, which looks for IPv4 unless it is given IPv6 in brackets: so a name
    that has IPv6 alone gives way to what it stands for. Waits for the name; raises OSError where it has no
    address."""
    host, _, port = url.removeprefix("tcp://").rpartition(":")
    if host.startswith("[") or host == "*":
        return url
    try:
        socket.getaddrinfo(host, None, socket.AF_INET)
    except UnicodeError as error:  # of Python's, which encodes the name
        raise OSError(errno.EINVAL, "it is no name of a machine") from error
    except OSError:
        found = socket.getaddrinfo(host, None, socket.AF_INET6)
        return f"tcp://[{found[0][4][0]}]:{port}"
    return url
