"""Addresses of servers: ``http://HOST:PORT``, ``https://HOST:PORT``, or ``unix:PATH`` of a Unix socket."""

from __future__ import annotations

from urllib.parse import urlsplit

import aiohttp

from turnout.core.errors import ConfigError

__all__ = ["connector", "http_url", "is_local", "server_url"]

UNIX = "unix:"
LOCAL = ("127.0.0.1", "localhost", "::1", "0.0.0.0", "::")
"""The last two are how a server on all interfaces names itself."""


def server_url(address: str) -> str:
    """An address, with or without ``http://`` and ``/v1``, without both ends. Raises ConfigError."""
    if address.startswith(UNIX):
        path = address.removeprefix(UNIX)
        return UNIX + (path[2:] if path.startswith("///") else path)
    url = (address if "://" in address else f"http://{address}").rstrip("/").removesuffix("/v1")
    try:
        parts = urlsplit(url)
        usable = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        usable = False
    if not usable:
        raise ConfigError(f"{address!r} is not the address of a server; write http://HOST:PORT, or unix:PATH")
    return url


def http_url(url: str) -> str:
    """What requests to a server, as of `server_url`, begin with."""
    return "http://localhost" if url.startswith(UNIX) else url


def connector(url: str) -> aiohttp.BaseConnector:
    """What connects to a server, on as many connections as are asked for."""
    if url.startswith(UNIX):
        return aiohttp.UnixConnector(url.removeprefix(UNIX), limit=0)
    return aiohttp.TCPConnector(limit=0)


def is_local(url: str) -> bool:
    """The server is on this machine."""
    return url.startswith(UNIX) or urlsplit(url).hostname in LOCAL
