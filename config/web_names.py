"""How hosts and origins of web pages are given, in the form that browsers send."""

from __future__ import annotations

import ipaddress
import re
from typing import Annotated

from pydantic import AfterValidator

from turnout.config.fields import Listed

__all__ = ["Address", "Hosts", "Origins"]

ANY = "*"
NAME = r"[a-z0-9_-]+(\.[a-z0-9_-]+)*"
HOST = re.compile(rf"(\*\.)?{NAME}")
ORIGIN = re.compile(rf"(?P<scheme>[a-z][a-z0-9+.-]*)://({NAME}|\[[0-9a-f:.]+\])(?P<port>:[0-9]{{1,5}})?")
DEFAULT_PORTS = {"http": ":80", "https": ":443"}
"""Browsers leave them out."""
OF_FILES = ("null", "file://")
"""What browsers and web views send for pages without a host."""


def _origins(given: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(map(_origin, given))


def _origin(given: str) -> str:
    origin = given.lower()
    if origin == ANY or origin in OF_FILES:
        return origin
    if (found := ORIGIN.fullmatch(origin.removesuffix("/"))) is None:
        raise ValueError(
            f"{given!r} is no origin; expected scheme://host[:port], such as https://chat.example.com, or *"
        )
    port = found["port"]
    return found[0].removesuffix(port) if port and port == DEFAULT_PORTS.get(found["scheme"]) else found[0]


def _hosts(given: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(map(_host, given))


def _host(given: str) -> str:
    host = given.lower().removesuffix(".")
    if given == ANY or HOST.fullmatch(host):
        return host  # as the server reads the header, without the dot at the end
    try:
        return str(ipaddress.IPv6Address(host.removeprefix("[").removesuffix("]")))
    except ValueError:
        raise ValueError(
            f"{given!r} is no host name; expected a name without scheme and port, such as llm.example.com, "
            "*.example.com or *"
        ) from None


Hosts = Annotated[Listed, AfterValidator(_hosts)]
Origins = Annotated[Listed, AfterValidator(_origins)]


def _without_brackets(host: str) -> str:
    return host[1:-1] if host.startswith("[") and host.endswith("]") else host


Address = Annotated[str, AfterValidator(_without_brackets)]
"""A host's name or address; one by IPv6 may have the brackets that it has in a URL."""
