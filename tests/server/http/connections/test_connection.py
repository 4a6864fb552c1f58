"""How long a client may take, with less patience than a server has."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress

import pytest
from running_server import RunningServer, eventually, running

from turnout.config import EngineConfig, ServerConfig
from turnout.server.http.connections.connection import ClientLimits
from turnout.text.tokenizer import Tokenizer

HEAD = b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
VERSION = b"GET /version HTTP/1.1\r\nHost: localhost\r\n\r\n"
READING = 0.5
"""Seconds that a client may read nothing."""
Connect = Callable[[], socket.socket]


@pytest.fixture(scope="module")
def hasty(tokenizer: Tokenizer) -> Iterator[RunningServer]:
    client_limits = ClientLimits(headers=0.5, body=0.5, reading=READING, leaving=0.5, discarded=100_000)
    config = ServerConfig(keep_alive_timeout=1)
    with running(tokenizer, EngineConfig(model="echo"), config, client_limits=client_limits) as server:
        yield server
        assert server.http.get("/health").status_code == 200


@pytest.fixture
def connect(hasty: RunningServer) -> Connect:
    port = int(hasty.url.rpartition(":")[2])
    return lambda: socket.create_connection(("127.0.0.1", port), timeout=20)


def received(connection: socket.socket) -> bytes:
    parts = []
    try:
        while part := connection.recv(2**16):
            parts.append(part)
    except ConnectionResetError:
        parts.append(b"RESET")
    return b"".join(parts)


@pytest.mark.parametrize("content", [b"GET /ver", VERSION[:-2], b"\r\n", VERSION + b"GET /ver"])
def test_headers_that_do_not_end_get_408(connect: Connect, content: bytes) -> None:
    with closing(connect()) as connection:
        connection.sendall(content)
        answer = received(connection)
    last = answer.rpartition(b"HTTP/1.1 ")[2]
    assert last.startswith(b"408 ") and b"the headers took longer than 0.5 seconds" in last


def test_headers_that_come_byte_by_byte_get_408(connect: Connect) -> None:
    """Each byte is progress. The time counts from the first."""
    with closing(connect()) as connection:
        with suppress(OSError):
            for byte in VERSION * 2:
                connection.sendall(bytes([byte]))
                time.sleep(0.05)
        assert received(connection).startswith(b"HTTP/1.1 408 ")


def test_a_connection_without_a_byte_is_closed(connect: Connect) -> None:
    with closing(connect()) as connection:
        assert received(connection) in (b"", b"RESET")


def test_a_connection_without_another_request_is_closed(connect: Connect) -> None:
    with closing(connect()) as connection:
        connection.sendall(VERSION)
        assert received(connection).count(b"HTTP/1.1 200 ") == 1


@pytest.mark.parametrize(
    ("head", "status"),
    [
        (b"GET /health HTTP/1.1\r\n", 400),
        (b"GET /health HTTP/1.1\r\nHost: a\r\nHost: b\r\n", 400),
        (b"GET /health HTTP/1.1\r\nHost:\r\n", 200),
        (b"GET /health HTTP/1.0\r\n", 200),
    ],
)
def test_a_request_names_one_host(connect: Connect, head: bytes, status: int) -> None:
    """Without one, or with two, it was served. HTTP/1.0 has no such header."""
    with closing(connect()) as connection:
        connection.sendall(head + b"Connection: close\r\n\r\n")
        answer = received(connection)
    assert answer.startswith(b"HTTP/1.1 %d " % status)
    assert (b"one Host header" in answer) == (status == 400)


def test_a_body_that_does_not_come_gets_408(connect: Connect) -> None:
    with closing(connect()) as connection:
        connection.sendall(HEAD + b"Content-Length: 100\r\n\r\n{")
        answer = received(connection)
    assert answer.startswith(b"HTTP/1.1 408 ") and b"the body came too slowly: 1 bytes" in answer


def test_a_body_that_comes_fast_enough_may_take_longer(connect: Connect) -> None:
    """A second more is given for each 16 KiB."""
    body = json.dumps({"prompt": "ab", "max_tokens": 4, "user": "x" * 400_000}).encode()
    with closing(connect()) as connection:
        connection.sendall(
            HEAD + b"Connection: close\r\nContent-Length: %d\r\n\r\n" % len(body) + body[:300_000]
        )
        time.sleep(1.5)
        connection.sendall(body[300_000:])
        assert received(connection).startswith(b"HTTP/1.1 200 ")


@contextmanager
def slow_to_read(url: str) -> Iterator[socket.socket]:
    """A client that is about to be sent more than the system's buffers hold, and has a small one itself."""
    asked = {"prompt": "a", "max_tokens": 400, "n": 48, "stream": True, "logprobs": 20}
    body = json.dumps(asked).encode()
    with closing(socket.socket()) as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        connection.connect(("127.0.0.1", int(url.rpartition(":")[2])))
        connection.sendall(HEAD + b"Content-Length: %d\r\n\r\n" % len(body) + body)
        yield connection


def test_a_client_that_does_not_read_loses_its_stream(
    hasty: RunningServer, caplog: pytest.LogCaptureFixture
) -> None:
    """It held its place in the engine, and what was generated for it, for as long as it liked."""
    caplog.set_level("INFO", "turnout.access")
    with slow_to_read(hasty.url):
        eventually(lambda: len(hasty.client.streams), 10)
        eventually(lambda: not len(hasty.client.streams), 60)
        eventually(lambda: hasty.work() == 0, 20)
    ended = [
        line for line in hasty.http.get("/metrics").text.splitlines() if "request_success_total{" in line
    ]
    assert any('"abort"' in line and not line.endswith(" 0.0") for line in ended), ended
    eventually(lambda: caplog.records)
    assert vars(caplog.records[0])["fields"]["ended"] == "client_not_reading"


def test_a_client_that_reads_slowly_keeps_its_stream(hasty: RunningServer) -> None:
    """It lost the stream: the system takes bytes again only when a third of several MB has been read."""
    for _ in range(5):
        with slow_to_read(hasty.url) as connection:
            longest = read_for(3, connection)
            kept = len(hasty.client.streams) == 1
        eventually(lambda: hasty.work() == 0, 20)
        if kept or longest < READING / 2:  # else the machine was too busy for the test to read
            break
    assert kept


def read_for(seconds: float, connection: socket.socket) -> float:
    """Returns the longest time between two pieces, to the end of the stream if that comes before."""
    began = latest = time.monotonic()
    longest = 0.0
    while latest < began + seconds:
        try:
            if not connection.recv(4096):
                break
        except ConnectionResetError:
            break
        time.sleep(0.1)
        before, latest = latest, time.monotonic()
        longest = max(longest, latest - before)
    return longest


def test_only_so_much_of_a_refused_body_is_read(connect: Connect) -> None:
    with closing(connect()) as connection:
        connection.sendall(
            HEAD.replace(b"/v1/completions", b"/nothing") + b"Content-Length: 99000000\r\n\r\n"
        )
        assert connection.recv(2**16).startswith(b"HTTP/1.1 404 ")
        with pytest.raises(OSError):
            for _ in range(99):
                connection.sendall(b"x" * 1_000_000)


def test_a_pipelined_request_is_answered_before_the_clock_starts(connect: Connect) -> None:
    """While a response is under way, the client owes nothing."""
    body = json.dumps({"prompt": "a", "max_tokens": 60, "user": "slow"}).encode()
    with closing(connect()) as connection:
        request = HEAD + b"Content-Length: %d\r\n\r\n" % len(body) + body
        connection.sendall(request + b"GET /ver")
        time.sleep(0.8)
        connection.sendall(b"sion HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        assert received(connection).count(b"HTTP/1.1 200 ") == 2


def _completion(user: str) -> tuple[bytes, bytes]:
    """A request whose body is as long as its user's name, headers and body apart."""
    body = json.dumps({"prompt": "ab", "max_tokens": 2, "user": user}).encode()
    return HEAD + b"Connection: close\r\nContent-Length: %d\r\n\r\n" % len(body), body


@pytest.mark.parametrize("path", [b"/v1/completions", b"/nothing"], ids=["served", "answered early"])
def test_a_body_that_ends_where_the_next_one_begins_is_counted_for_itself(
    connect: Connect, path: bytes
) -> None:
    """The first body counted as the frames of the second, which was refused with 400."""
    head, body = _completion("x" * 90_000)
    first = head.replace(b"/v1/completions", path).replace(b"Connection: close\r\n", b"")
    head, second = _completion("y" * 200)
    with closing(connect()) as connection:
        connection.sendall(first + body[:-1000])
        time.sleep(0.2)
        connection.sendall(body[-1000:] + head + second[:100])
        time.sleep(0.2)
        connection.sendall(second[100:])
        answers = received(connection)
    served = 2 if path == b"/v1/completions" else 1
    assert answers.count(b"HTTP/1.1 200 ") == served and b"little beside" not in answers, answers
