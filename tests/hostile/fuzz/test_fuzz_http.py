"""Bytes that are almost HTTP: what is answered is HTTP, blames the client, and costs no one else anything."""

from __future__ import annotations

import itertools
import socket
from contextlib import suppress
from dataclasses import dataclass

from fuzzing import Fuzz
from hypothesis import strategies as st
from tiny_server import TinyServer, read_all

BODY = b'{"prompt": "a", "max_tokens": 1}'
METHODS = st.sampled_from(
    [b"GET", b"POST", b"PUT", b"HEAD", b"OPTIONS", b"DELETE", b"PRI", b"get", b"G\0T", b""]
)
PATHS = st.one_of(
    st.sampled_from(
        [
            b"/health",
            b"/v1/completions",
            b"/v1/models/%2e%2e/x",
            b"/admin/kv?map=true",
            b"/admin/prefixes/%00",
            b"*",
            b"/" + b"a/" * 2000,
            b"http://other/health",
            b"/\xff",
            b"//v1//models",
            b"/v1/completions?%",
        ]
    ),
    st.binary(max_size=12).map(lambda end: b"/" + end),
)
VERSIONS = st.sampled_from([b"HTTP/1.1"] * 6 + [b"HTTP/1.0", b"HTTP/2.0", b"HTTP/9.9", b"", b"HTTP/1.1 x"])
HEADERS = st.one_of(
    st.sampled_from(
        [
            b"Content-Length: 32",
            b"Content-Length: 31",
            b"Content-Length: 99",
            b"Content-Length: -1",
            b"Content-Length: 1e3",
            b"Content-Length: 99999999999999999999",
            b"Content-Length: 32, 32",
            b"Transfer-Encoding: chunked",
            b"Transfer-Encoding: gzip, chunked",
            b"Transfer-Encoding: xchunked",
            b"Connection: close",
            b"Connection: Upgrade",
            b"Upgrade: websocket",
            b"Upgrade: h2c",
            b"Expect: 100-continue",
            b"Expect: 200-ok",
            b"Content-Type: text/plain",
            b"Content-Encoding: gzip",
            b"Authorization: Bearer \xff\xfe",
            b"Authorization: Basic Og==",
            b"X-Request-Id: " + b"i" * 600,
            b"X-Request-Id: a\x07b",
            b"Accept: application/openmetrics-text; version=\xe9",
            b" folded: header",
            b": no name",
            b"no colon",
            b"Cookie: \0",
            b"X: " + b"v" * 8000,
        ]
    ),
    st.binary(max_size=16),
)
CHUNKED = [
    b"20\r\n" + BODY + b"\r\n0\r\n\r\n",
    b"".join(b"1\r\n" + BODY[i : i + 1] + b"\r\n" for i in range(len(BODY))) + b"0\r\n\r\n",
    b"20;ext=1\r\n" + BODY + b"\r\n0\r\nTrailer: 1\r\n\r\n",
    b"-1\r\n" + BODY + b"\r\n0\r\n\r\n",
    b"ffffffffffffffffff\r\n" + BODY,
    b"20\n" + BODY + b"\n0\n\n",
    b"0\r\n\r\n",
    b"zz\r\n\r\n",
]
BODIES = st.one_of(
    st.just(BODY), st.just(BODY), st.just(b""), st.sampled_from(CHUNKED), st.binary(max_size=40)
)


@dataclass(frozen=True)
class Sent:
    """What a client sends, in which pieces."""

    content: bytes
    cuts: tuple[int, ...]

    def pieces(self) -> list[bytes]:
        places = [0, *sorted(cut % (len(self.content) + 1) for cut in self.cuts), len(self.content)]
        return [self.content[start:end] for start, end in itertools.pairwise(places)]


@st.composite
def requests(draw: st.DrawFn) -> bytes:
    """One request, most of it well formed."""
    if draw(st.integers(0, 3)):
        line = b"POST /v1/completions HTTP/1.1"
        headers = [b"Host: localhost", b"Content-Length: 32"]
    else:
        line, headers = b" ".join([draw(METHODS), draw(PATHS), draw(VERSIONS)]), [b"Host: localhost"]
    headers += draw(st.lists(HEADERS, max_size=3))
    end = draw(st.sampled_from([b"\r\n"] * 6 + [b"\n", b"\r"]))
    return end.join([line, *headers, b"", b""]) + draw(BODIES)


@st.composite
def sendings(draw: st.DrawFn) -> Sent:
    """One request or several at once, sometimes cut short, sometimes in pieces, sometimes anything."""
    content = b"".join(draw(st.lists(requests(), min_size=1, max_size=3)))
    if not draw(st.integers(0, 7)):
        content = draw(st.binary(max_size=200))
    if not draw(st.integers(0, 3)):
        content = content[: draw(st.integers(0, len(content)))]
    return Sent(content, tuple(draw(st.lists(st.integers(0, 10_000), max_size=3))))


def statuses(answer: bytes) -> list[int]:
    """Those of all responses in what a connection brought; fails if it is anything but responses."""
    found = []
    while answer:
        head, separator, rest = answer.partition(b"\r\n\r\n")
        assert separator and head.startswith(b"HTTP/1.1 "), answer[:200]
        lines = head.split(b"\r\n")
        status = int(lines[0].split()[1])
        headers = dict(line.lower().split(b": ", 1) for line in lines[1:])
        length = int(headers.get(b"content-length", b"0"))
        if b"content-length" not in headers and status >= 200:
            assert headers.get(b"connection") == b"close" or status in (204, 304), head
            length = len(rest)
        found.append(status)
        # An answer to HEAD has a length and no content; then another answer follows, or nothing.
        answer = rest if not rest or rest.startswith(b"HTTP/1.1 ") else rest[length:]
    return found


def test_all_bytes_are_answered_or_dropped(fuzz: Fuzz, fuzzed: TinyServer) -> None:
    sent = 0

    def check(sending: Sent) -> None:
        nonlocal sent
        with fuzzed.connect() as connection:
            connection.settimeout(20)
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            with suppress(OSError):  # refused early
                for piece in sending.pieces():
                    connection.sendall(piece)
                connection.shutdown(socket.SHUT_WR)
            answer = read_all(connection)
        found = statuses(answer)
        assert all(status < 500 for status in found), (found, answer)
        sent += 1
        if not sent % 25:
            fuzzed.check()

    fuzz(sendings(), check, 100)
    fuzzed.check()
