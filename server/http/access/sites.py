"""Which host names and web pages a server answers, so that a page cannot use its visitor's server.

A page of any site can make its visitor's browser send requests to this machine, and read the answers if its
own name points here (DNS rebinding). It cannot give the browser a key, nor change ``Host`` and ``Origin``.
"""

from __future__ import annotations

import ipaddress
from urllib.parse import SplitResult, urlsplit

from starlette.datastructures import Headers

from turnout.config import ServerConfig
from turnout.server.http.errors import ApiError

__all__ = ["Sites", "is_local_page", "is_loopback", "names_loopback"]

ANY = "*"
WEB = ("http", "https")
LOCAL = ("localhost", "0.0.0.0", "::")
"""Names of this machine. A server on all interfaces prints the address of all as its own, and a client that
connects to that reaches its own machine."""


class Sites:
    """Checks ``Host`` and ``Origin``."""

    def __init__(self, config: ServerConfig, *, keyless: bool) -> None:
        """`keyless`: clients need no key."""
        self._hosts, self._origins = config.allowed_hosts, config.allowed_origins
        local = config.uds is None and (config.host == "localhost" or is_loopback(config.host))
        self._checks_host = bool(self._hosts) or (keyless and local)
        self._checks_origin = keyless

    def refusal(self, headers: Headers) -> ApiError | None:
        """Why a request with these headers is not served; None if it is."""
        host = _host(f"//{headers.get('host', '')}")
        if self._checks_host and not self._knows(host):
            message = (
                f"the request is for the host {host!r}, which this server does not know as its own; "
                "name it with --allowed-hosts, or require a key"
            )
            return ApiError(403, message, code="host_not_allowed")
        origin = headers.get("origin")
        if self._checks_origin and origin is not None and not self._accepts(origin, headers.get("host", "")):
            message = (
                f"pages of {origin!r} may not use this server; let them with --allowed-origins, "
                "or require a key"
            )
            return ApiError(403, message, code="origin_not_allowed")
        return None

    def _knows(self, host: str) -> bool:
        return _is_local_name(host) or any(_matches(host, allowed) for allowed in self._hosts)

    def _accepts(self, origin: str, host: str) -> bool:
        if ANY in self._origins or origin in self._origins:
            return True
        parts = _split(origin)
        if parts.scheme not in (*WEB, ""):
            return True  # an application or an extension, not a web page
        return names_loopback(origin) or (bool(parts.netloc) and parts.netloc.lower() == host.lower())


def is_local_page(origin: str) -> bool:
    """An origin is that of web pages of this machine."""
    return _split(origin).scheme in WEB and names_loopback(origin)


def names_loopback(url: str) -> bool:
    """A URL's host is this machine."""
    return _is_local_name(_host(url))


def is_loopback(address: str) -> bool:
    """An address is this machine's own."""
    try:
        return ipaddress.ip_address(address).is_loopback
    except ValueError:
        return False


def _is_local_name(host: str) -> bool:
    return host in LOCAL or host.endswith(".localhost") or is_loopback(host)


def _matches(host: str, allowed: str) -> bool:
    if allowed.startswith("*."):
        return host.endswith(allowed[1:])
    return allowed == ANY or host == allowed


def _host(url: str) -> str:
    """In lower case, without the port; empty if the URL has none."""
    return (_split(url).hostname or "").rstrip(".")


def _split(url: str) -> SplitResult:
    try:
        parts = urlsplit(url)
        _ = parts.hostname
    except ValueError:
        return urlsplit("")
    return parts
