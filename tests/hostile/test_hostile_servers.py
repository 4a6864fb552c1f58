"""``turnout chat`` and ``turnout bench serve`` against servers that mean them harm: the commands end, with a
message, and take no more than they need.
"""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass

import pytest
from click.testing import CliRunner, Result
from one_in import one_in

from turnout.cli.main import cli
from turnout.cli.terminal.printable import printable

MEGABYTE = 2**20
ENDLESS = 200 * MEGABYTE
"""Bytes that a server sends if the client lets it."""
HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n"
FAILED = b"HTTP/1.1 500 Oh\r\nConnection: close\r\n\r\n"
MODELS = json.dumps({"data": [{"id": "m"}]}).encode()


@dataclass
class HostileServer:
    """Answers GET with the model list, and POST with `answer` and then `filler` without end."""

    answer: bytes
    filler: bytes = b""
    models: bytes = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(MODELS), MODELS)
    url: str = ""
    sent: int = 0
    """Bytes of filler that a client took, or that lie in the buffers between."""

    def serve(self, connection: socket.socket) -> None:
        with connection, suppress(OSError):
            posted = connection.recv(65536).startswith(b"POST")
            connection.sendall(self.answer if posted else self.models)
            while self.filler and posted and self.sent < ENDLESS:
                self.sent += connection.send(self.filler)


@contextmanager
def running(server: HostileServer) -> Iterator[HostileServer]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        server.url = f"http://127.0.0.1:{listener.getsockname()[1]}"

        def accept() -> None:
            with suppress(OSError):
                while True:
                    threading.Thread(target=server.serve, args=(listener.accept()[0],), daemon=True).start()

        thread = threading.Thread(target=accept)
        thread.start()
        try:
            yield server
        finally:
            listener.shutdown(socket.SHUT_RDWR)
            thread.join()


def event(content: object) -> bytes:
    return b"data: " + (content if isinstance(content, bytes) else json.dumps(content).encode()) + b"\n\n"


DEEP = b"[" * 100_000
TEXT = event({"choices": [{"text": "a", "delta": {"content": "a"}}]})
SERVERS: dict[str, HostileServer] = {
    "no HTTP": HostileServer(b"\0\xff" * 1000),
    "a head without end": HostileServer(b"HTTP/1.1 200 OK\r\n", b"X: " + b"x" * 65536),
    "many headers": HostileServer(b"HTTP/1.1 200 OK\r\n", b"X: 1\r\n" * 4000),
    "an error without end": HostileServer(FAILED, b"x" * 65536),
    "an error of brackets": HostileServer(FAILED + DEEP),
    "an error within errors": HostileServer(FAILED + b'{"error": ' * 500 + b"1" + b"}" * 500),
    "a line without end": HostileServer(HEAD, b"x" * 65536),
    "an event without end": HostileServer(HEAD + b'data: {"choices": [{"text": "', b"x" * 65536),
    "an event of brackets": HostileServer(HEAD + event(b'{"error": {"a": ' + DEEP)),
    "another kind of JSON": HostileServer(HEAD + event([1, 2, 3])),
    "choices of a wrong type": HostileServer(HEAD + event({"choices": {"0": "a"}})),
    "no Unicode": HostileServer(HEAD + event(b'{"choices": [{"text": "\xff"}]}')),
    "half a surrogate pair": HostileServer(HEAD + event(b'{"choices": [{"text": "\\ud800"}]}')),
    "numbers of any size": HostileServer(
        HEAD + event({"choices": [], "usage": {"completion_tokens": 10**30}})
    ),
    "a count of tokens": HostileServer(
        HEAD + TEXT + event({"choices": [], "usage": {"completion_tokens": 10**12}}) + event(b"[DONE]")
    ),
    "a negative count": HostileServer(
        HEAD + TEXT + event({"choices": [], "usage": {"completion_tokens": -5}})
    ),
    "a redirection to itself": HostileServer(
        b"HTTP/1.1 307 X\r\nLocation: /v1/completions\r\nContent-Length: 0\r\n\r\n"
    ),
    "a redirection elsewhere": HostileServer(
        b"HTTP/1.1 307 X\r\nLocation: file:///etc/passwd\r\nContent-Length: 0\r\n\r\n"
    ),
    "a body that breaks off": HostileServer(b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n" + TEXT),
    "a chunk of any size": HostileServer(
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + b"f" * 40 + b"\r\n" + TEXT
    ),
    "content that is not compressed": HostileServer(
        HEAD.replace(b"\r\n\r\n", b"\r\nContent-Encoding: gzip\r\n\r\n") + TEXT
    ),
    "nothing": HostileServer(b""),
}


def assert_ended(done: Result, server: HostileServer) -> None:
    """By itself, having read little."""
    assert done.exception is None or isinstance(done.exception, SystemExit), done.exc_info
    assert "Traceback" not in done.output
    assert len(done.output) < 10_000
    assert server.sent < ENDLESS / 2


@pytest.mark.parametrize("name", one_in(6, SERVERS, str))
def test_bench_ends_with_a_message(name: str) -> None:
    with running(SERVERS[name]) as server:
        workload = ["--workload", "poisson:rate=100,requests=2,prompt=4,output=4", "--model", "m"]
        done = CliRunner().invoke(cli, ["bench", "serve", "--url", server.url, *workload])
        assert_ended(done, server)
    assert done.exit_code == 1


@pytest.mark.parametrize("name", SERVERS)
def test_chat_ends_with_a_message(name: str) -> None:
    SERVERS[name].sent = 0
    with running(SERVERS[name]) as server:
        done = CliRunner().invoke(cli, ["chat", "--url", server.url], input="hello\n")
        assert_ended(done, server)


@pytest.mark.parametrize(
    "models",
    [b'{"data": 5}', b'{"data": [{"id": ["m"]}]}', DEEP, b"", b'{"data": []}', b"\xff"],
    ids=lambda m: repr(m[:20]),
)
def test_chat_finds_no_model(models: bytes) -> None:
    answer = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(models), models)
    with running(HostileServer(b"", models=answer)) as server:
        done = CliRunner().invoke(cli, ["chat", "--url", server.url], input="hello\n")
        assert_ended(done, server)
    assert done.exit_code == 1 and "Error: " in done.output


def test_a_terminal_is_sent_no_commands() -> None:
    """An answer once could set the terminal's title, or write to the clipboard."""
    assert printable("a\x1b]52;c;eA==\x07\tb\r\n\x9b2J\x7f") == "a␛]52;c;eA==␇\tb␍\n\ufffd2J␡"
