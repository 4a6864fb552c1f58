"""Connections that send too much, too slowly or nothing, and clients that do not read."""

from __future__ import annotations

import json
import resource
import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, suppress

import pytest
from tiny_server import TinyServer, read_all, serving

REQUEST = b"GET /version HTTP/1.1\r\nHost: localhost\r\n"
BODY = b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"


@pytest.mark.parametrize(
    "content",
    [
        REQUEST + b"X-Large: " + b"x" * 97_000_000 + b"\r\n\r\n",
        REQUEST + b"".join(b"X-%d: 1\r\n" % number for number in range(200)) + b"\r\n",
        REQUEST + b"X-Part: 12345678\r\n" * 8000 + b"\r\n",
        b"GET /" + b"x" * 1_000_000,
        b"\r\n" * 1_000_000,
    ],
    ids=["one header", "200 headers", "8000 headers", "path", "empty lines"],
)
def test_headers_are_bounded(tiny: TinyServer, content: bytes) -> None:
    """97 MB were read into memory, on each connection, before a key was asked for."""
    before = tiny.memory()
    assert tiny.send(content).startswith(b"HTTP/1.1 431 ")
    assert tiny.memory() - before < 50e6


@pytest.mark.parametrize(
    "content",
    [
        b"\x16\x03\x01\x02\x00\x01\x00" * 100,
        b"hello\r\n\r\n",
        b"GET http://[ HTTP/1.1\r\n\r\n",
        b"CONNECT x:1 HTTP/1.1\r\n\r\n",
    ],
    ids=["TLS", "no HTTP", "no URL", "CONNECT"],
)
def test_what_is_not_http_is_told_so(tiny: TinyServer, content: bytes) -> None:
    answer = tiny.send(content)
    assert answer.startswith(b"HTTP/1.1 400 ")
    assert b'{"error":' in answer


def test_requests_sent_ahead_are_bounded(tiny: TinyServer) -> None:
    """Thousands fit into one packet, and each took memory until its turn came."""
    before = tiny.memory()
    answer = tiny.send((REQUEST + b"\r\n") * 100_000)
    assert answer.count(b"HTTP/1.1 200 OK") <= 32
    assert tiny.memory() - before < 50e6


def test_a_few_requests_sent_ahead_are_answered_in_order(tiny: TinyServer) -> None:
    paths = [b"/version", b"/v1/models", b"/health"]
    ahead = b"".join(b"GET " + path + b" HTTP/1.1\r\nHost: localhost\r\n\r\n" for path in paths)
    last = b"GET /version HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
    answer = tiny.send(ahead + last)
    bodies = [part.partition(b"\r\n\r\n")[2] for part in answer.split(b"HTTP/1.1 200 OK")[1:]]
    for body, name in zip(bodies, ["version", "data", "status", "version"], strict=True):
        assert name in json.loads(body)


def test_a_trailer_is_no_header(tiny: TinyServer) -> None:
    """A trailer comes after the body. It was added to the headers, without bound."""
    body = b'{"prompt": "a", "max_tokens": 1}'
    trailers = b"".join(b"X-%d: %s\r\n" % (number, b"x" * 100) for number in range(10_000))
    content = BODY + b"Transfer-Encoding: chunked\r\n\r\n%x\r\n%s\r\n0\r\n" % (len(body), body) + trailers
    assert tiny.send(content).startswith(b"HTTP/1.1 400 ")


def test_a_request_that_is_refused_early_gets_its_answer(tiny: TinyServer) -> None:
    """A client that sends 20 MB before it reads would find the connection reset."""
    content = BODY.replace(b"/v1/completions", b"/v1/nothing") + b"Content-Length: 20000000\r\n\r\n"
    with tiny.connect() as connection:
        connection.sendall(content + b"x" * 20_000_000)
        assert connection.recv(2**16).startswith(b"HTTP/1.1 404 ")
        connection.sendall(REQUEST + b"Connection: close\r\n\r\n")  # the same connection goes on
        assert b"HTTP/1.1 200 OK" in read_all(connection)
    closing_one = content.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n")
    with tiny.connect() as connection:
        connection.sendall(closing_one + b"x" * 19_000_000)
        assert read_all(connection).startswith(b"HTTP/1.1 404 ")


@pytest.fixture(scope="module")
def small() -> Iterator[TinyServer]:
    """A server that may have few connections open."""
    with serving("--kv-memory", "64MiB", "--max-connections", "32", "--keep-alive-timeout", "600") as server:
        yield server


def test_idle_connections_make_room(small: TinyServer) -> None:
    """Connections without a request took all descriptors, and the server answered no one any more."""
    with ExitStack() as stack:
        idle = [stack.enter_context(closing(small.connect())) for _ in range(200)]
        for connection in idle[::2]:
            with suppress(OSError):  # closed already
                connection.sendall(b"GET /health HTTP/1.1\r\nX-Slow: ")
        time.sleep(1.5)
        for _ in range(5):
            assert small.health() < 5
        small.check()


def test_bodies_that_do_not_come_make_room(small: TinyServer) -> None:
    with ExitStack() as stack:
        for _ in range(32):
            connection = stack.enter_context(closing(small.connect()))
            connection.sendall(BODY + b"Content-Length: 1000\r\n\r\n{")
        time.sleep(1.5)
        assert small.health() < 5
        small.check()


def test_an_address_may_have_so_many_connections() -> None:
    with (
        serving("--kv-memory", "64MiB", "--max-connections-per-address", "8") as server,
        ExitStack() as stack,
    ):
        for _ in range(8):
            stack.enter_context(closing(server.connect()))
        time.sleep(0.5)
        with server.connect() as refused:
            answer = read_all(refused)
        assert answer.startswith(b"HTTP/1.1 429 ")
        assert b"retry-after: 1" in answer.lower()
        stack.close()
        time.sleep(0.5)
        server.check()


def test_a_client_that_reads_nothing_holds_up_no_one(tiny: TinyServer) -> None:
    """Its stream goes on until the buffers are full; the other streams go on all the same."""
    asked = {"max_tokens": 400, "n": 8, "stream": True, "logprobs": 5, "ignore_eos": True}
    request = json.dumps({"prompt": "def f(x):", **asked}).encode()
    with ExitStack() as stack:
        for _ in range(4):
            connection = stack.enter_context(closing(socket.socket()))
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            connection.connect(("127.0.0.1", tiny.port))
            connection.sendall(BODY + b"Content-Length: %d\r\n\r\n" % len(request) + request)
        before = tiny.memory()
        for _ in range(5):
            assert tiny.health() < 5
            assert tiny.answer() == tiny.tokens
        assert tiny.memory() - before < 100e6


def few_files() -> None:
    resource.setrlimit(resource.RLIMIT_NOFILE, (128, 128))


@pytest.mark.slow
def test_idle_connections_take_no_descriptor_that_is_needed() -> None:
    """Nor do those that ask, as tests/server/http/connections/test_accepting.py shows in every run."""
    with serving("--kv-memory", "64MiB", preexec_fn=few_files) as server, ExitStack() as stack:
        for _ in range(300):
            stack.enter_context(closing(server.connect()))
        time.sleep(1.5)
        assert server.health() < 5
        server.check()
