"""Requests that ask for another protocol, as curl's ``--http2`` and Java's HTTP client do by default.

A server may go on in HTTP/1.1 as if they had not asked (RFC 9110, section 7.8). The parser reads no body
behind such headers, so they are read a second time without what asks.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable

import httptools

__all__ = ["asks_for_upgrade", "new_parser", "unread", "without_upgrade"]


def new_parser(protocol: object) -> httptools.HttpRequestParser:
    """A parser for the rest of a connection, as uvicorn makes the first."""
    parser = httptools.HttpRequestParser(protocol)
    parser.set_dangerous_leniencies(lenient_data_after_close=True)
    return parser


def asks_for_upgrade(parser: httptools.HttpRequestParser) -> bool:
    """Whether the parser stops behind the headers for that. It also stops behind CONNECT's."""
    return bool(parser.should_upgrade()) and parser.get_method() != b"CONNECT"


def unread(data: bytes) -> bytes:
    """What the parser has left of `data`, where it has just raised HttpParserUpgrade."""
    error = sys.exc_info()[1]
    assert isinstance(error, httptools.HttpParserUpgrade)
    return data[error.args[0] :]


def without_upgrade(
    parser: httptools.HttpRequestParser, url: bytes, headers: Iterable[tuple[bytes, bytes]]
) -> bytes:
    """The headers that the parser has read, but for those about the upgrade. Names are in small letters."""
    version = parser.get_http_version().encode()
    lines = [parser.get_method() + b" " + url + b" HTTP/" + version]
    for name, value in headers:
        if name == b"connection":
            asked = [option.strip() for option in value.split(b",")]
            value = b", ".join(
                option for option in asked if option.lower() not in (b"upgrade", b"http2-settings")
            )
        if name not in (b"upgrade", b"http2-settings"):
            lines.append(name + b": " + value)
    return b"\r\n".join([*lines, b"", b""])
