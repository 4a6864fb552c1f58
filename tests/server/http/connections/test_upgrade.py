"""A client that asks for another protocol is answered in HTTP/1.1, with its body."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Iterator
from contextlib import closing

import pytest
from running_server import RunningServer, running

from turnout.config import EngineConfig, ServerConfig
from turnout.text.tokenizer import Tokenizer

ASKS = [
    b"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQAoAAAAAIAAAAA\r\n",
    b"Upgrade: websocket\r\nConnection: keep-alive, Upgrade\r\n",
    b"Connection: upgrade\r\nUpgrade: TLS/1.0\r\n",
]
BODY = json.dumps({"prompt": "abc", "max_tokens": 3}).encode()
SMUGGLED = b"GET /version HTTP/1.1\r\nHost: localhost\r\n\r\n"


@pytest.fixture(scope="module")
def server(tokenizer: Tokenizer) -> Iterator[RunningServer]:
    with running(tokenizer, EngineConfig(model="echo"), ServerConfig(keep_alive_timeout=1)) as server:
        yield server


def post(asks: bytes, body: bytes) -> bytes:
    head = b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    return head + asks + b"Content-Length: %d\r\n\r\n" % len(body) + body


def chunked(asks: bytes) -> bytes:
    head, _, _ = post(asks + b"Transfer-Encoding: chunked\r\n", b"").partition(b"Content-Length")
    return head + b"\r\n%x\r\n" % len(BODY) + BODY + b"\r\n0\r\n\r\n"


def answers(server: RunningServer, *pieces: bytes) -> list[bytes]:
    """The answers on one connection, to what comes piece by piece."""
    port = int(server.url.rpartition(":")[2])
    with closing(socket.create_connection(("127.0.0.1", port), timeout=20)) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for piece in pieces:
            connection.sendall(piece)
            time.sleep(0.05)
        received = b""
        while part := connection.recv(2**16):
            received += part
    return received.split(b"HTTP/1.1 ")[1:]


@pytest.mark.parametrize("asks", ASKS)
def test_it_is_answered_in_http(server: RunningServer, asks: bytes) -> None:
    (answer,) = answers(server, post(asks, BODY))
    assert answer.startswith(b"200 ") and b'"abc"' in answer


@pytest.mark.parametrize("cut", [5, 60, 200])
def test_it_may_come_in_pieces(server: RunningServer, cut: int) -> None:
    for whole in (post(ASKS[0], BODY), chunked(ASKS[0])):
        (answer,) = answers(server, whole[:cut], whole[cut:-4], whole[-4:])
        assert answer.startswith(b"200 ") and b'"abc"' in answer


def test_a_body_is_no_request(server: RunningServer) -> None:
    (answer,) = answers(server, post(ASKS[0], SMUGGLED))
    assert answer.startswith(b"400 ") and b"not valid JSON" in answer


def test_several_may_follow_one_another(server: RunningServer) -> None:
    sent = post(ASKS[0], BODY) + post(ASKS[1], BODY) + post(b"", BODY)
    assert [answer[:4] for answer in answers(server, sent)] == [b"200 "] * 3
    assert [answer[:4] for answer in answers(server, sent[:-9], sent[-9:])] == [b"200 "] * 3


def test_one_without_a_body_is_answered(server: RunningServer) -> None:
    ask = SMUGGLED[:-2] + ASKS[1] + b"\r\n"
    assert [answer[:4] for answer in answers(server, ask + ask + SMUGGLED)] == [b"200 "] * 3


def test_a_tunnel_is_refused(server: RunningServer) -> None:
    (answer, *_) = answers(server, b"CONNECT example.com:443 HTTP/1.1\r\nHost: example.com:443\r\n\r\n")
    assert answer.startswith(b"4")
