"""What anyone who reaches a worker may send, with its keys and without: it goes on serving its server."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import psutil
import pytest
import zmq
from tiny_server import TinyServer, serving

from turnout.core import limits
from turnout.core.version import own_version

pytestmark = pytest.mark.slow
MIB = 2**20
GREETING = b"\xff" + b"\0" * 8 + b"\x7f\x03\x01CURVE" + b"\0" * 15 + b"\x00" + b"\0" * 31
"""What ZeroMQ's protocol begins with, for CURVE keys."""
HELLO = json.dumps({"version": own_version()}).encode()


class Worker:
    """`turnout worker`, whose engine a server has."""

    def __init__(self, folder: Path) -> None:
        self.keys = folder / "fleet.key"
        command = [sys.executable, "-m", "turnout", "worker", "turnout-tiny", "--kv-memory", "64MiB"]
        listen = ["--listen", "tcp://127.0.0.1:*", "--key-file", str(self.keys)]
        self.popen = subprocess.Popen([*command, *listen], stderr=subprocess.PIPE, text=True)
        self.log: list[str] = []
        self._found = threading.Event()
        self.url = ""
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        assert self._found.wait(120) and self.url, self.text()
        self.port = int(self.url.rpartition(":")[2])
        self.process = psutil.Process(self.popen.pid)

    def _read(self) -> None:
        assert self.popen.stderr is not None
        with self.popen.stderr as lines:
            for line in lines:
                self.log.append(line)
                if "listening at " in line:
                    self.url = line.split("listening at ")[1].strip()
                    self._found.set()
        self._found.set()

    def end(self) -> None:
        self.popen.terminate()
        self.popen.wait(20)
        self._reader.join(5)

    def text(self) -> str:
        return "".join(self.log)

    def connect(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.port), timeout=30)

    @contextmanager
    def with_keys(self) -> Iterator[zmq.Socket[bytes]]:
        """A socket of one that has the file of keys."""
        given = json.loads(self.keys.read_text())
        with zmq.Context() as context, context.socket(zmq.DEALER) as peer:
            peer.linger = 0
            peer.curve_serverkey = given["public"].encode()
            peer.curve_publickey = given["public"].encode()
            peer.curve_secretkey = given["secret"].encode()
            peer.connect(self.url)
            yield peer


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Worker, TinyServer]]:
    worker = Worker(tmp_path_factory.mktemp("worker"))
    flags = ("--replica", worker.url, "--replica-key-file", str(worker.keys))
    try:
        with serving(*flags) as server:
            yield worker, server
    finally:
        worker.end()


@pytest.fixture
def worker(pair: tuple[Worker, TinyServer]) -> Iterator[Worker]:
    """Its server is found with the same engine, and the same answers, when the test has ended."""
    given, server = pair
    engines = [child.pid for child in given.process.children()]
    yield given
    server.check()
    assert [child.pid for child in given.process.children()] == engines, given.text()
    assert given.text().count("a server has the engine") == 1, given.text()
    assert "Traceback" not in given.text(), given.text()


def beside(pair: tuple[Worker, TinyServer], attack: Callable[[], None]) -> None:
    """Carries out an attack while the server answers."""
    over = threading.Event()
    answers: list[bool] = []

    def others() -> None:
        while not over.is_set() or not answers:
            answers.append(pair[1].answer() == pair[1].tokens)

    thread = threading.Thread(target=others)
    thread.start()
    try:
        attack()
    finally:
        over.set()
        thread.join()
    assert all(answers)


BYTES = {
    "HTTP": b"GET / HTTP/1.1\r\nHost: a\r\n\r\n",
    "zeros": b"\0" * MIB,
    "noise": bytes(range(256)) * 4096,
    "a greeting alone": GREETING,
    "a greeting and noise": GREETING + bytes(range(255, -1, -1)) * 4096,
    "another mechanism": GREETING.replace(b"CURVE", b"NULL\0") + b"\x04\x26\x05READY" + b"\0" * 32,
    "a command of 2^63 bytes": GREETING + b"\x06" + (2**63 - 1).to_bytes(8, "big"),
    "a message of 4 GB": GREETING + b"\x02" + (2**32).to_bytes(8, "big") + b"x" * MIB,
}


@pytest.mark.parametrize("sent", BYTES)
def test_bytes_without_keys_change_nothing(
    pair: tuple[Worker, TinyServer], worker: Worker, sent: str
) -> None:
    before = worker.process.memory_info().rss

    def attack() -> None:
        for _ in range(20):
            with worker.connect() as connection, suppress(OSError):
                connection.sendall(BYTES[sent])

    beside(pair, attack)
    assert worker.process.memory_info().rss < before + 50 * MIB


def test_a_command_of_gigabytes_without_keys_takes_no_memory(
    pair: tuple[Worker, TinyServer], worker: Worker
) -> None:
    """Whoever has no keys may begin a handshake, and its commands have lengths too."""
    before, most = worker.process.memory_info().rss, 0

    def attack() -> None:
        nonlocal most
        with worker.connect() as connection, suppress(OSError):
            connection.sendall(GREETING + b"\x06" + (2**32).to_bytes(8, "big"))
            for _ in range(512):
                connection.sendall(b"x" * MIB)
                most = max(most, worker.process.memory_info().rss)

    beside(pair, attack)
    assert most < before + 100 * MIB


def test_hundreds_of_idle_connections_are_closed_again(
    pair: tuple[Worker, TinyServer], worker: Worker
) -> None:
    before = worker.process.num_fds()
    with ExitStack() as stack:
        for number in range(300):
            connection = stack.enter_context(worker.connect())
            if number % 2:
                connection.sendall(GREETING[: number % 64])
        beside(pair, lambda: None)
        deadline = time.monotonic() + 60
        while worker.process.num_fds() > before + 10:  # those that agree on no keys within 5 s
            assert time.monotonic() < deadline
            time.sleep(0.2)


FRAMES: dict[str, list[bytes]] = {
    "one frame": [b"hello"],
    "three frames": [b"hello", HELLO, b"more"],
    "an empty message": [b"", b""],
    "an unknown kind": [b"explode", b""],
    "a hello of no JSON": [b"hello", b"\xff{"],
    "a hello of another type": [b"hello", b'{"version": 7}'],
    "a hello without a version": [b"hello", b"{}"],
    "a hello of megabytes": [b"hello", json.dumps({"version": "9" * 4 * MIB}).encode()],
    "another version": [b"hello", b'{"version": "0.0.0"}'],
    "a command of another's engine": [b"command", b"\x81\xa4type\xa5Abort"],
    "a command to leave": [b"command", b"\x81\xa4type\xa8Shutdown"],
    "a goodbye of one that is not there": [b"bye", b""],
    "a kind of workers": [b"died", b'{"how": "was killed", "fault": true}'],
}


@pytest.mark.parametrize("frames", FRAMES)
def test_messages_with_keys_that_make_no_sense_change_nothing(
    pair: tuple[Worker, TinyServer], worker: Worker, frames: str
) -> None:
    with worker.with_keys() as peer:
        beside(pair, lambda: [peer.send_multipart(FRAMES[frames]) for _ in range(20)] and time.sleep(0.3))


def test_a_flood_of_hellos_is_one_server_that_waits(pair: tuple[Worker, TinyServer], worker: Worker) -> None:
    before = worker.process.memory_info().rss
    with worker.with_keys() as peer:
        peer.set_hwm(0)

        def attack() -> None:
            for _ in range(50_000):
                peer.send_multipart([b"hello", HELLO])
            peer.send_multipart([b"bye", b""])
            time.sleep(1)

        beside(pair, attack)
        assert peer.poll(5000)
        assert peer.recv_multipart()[0] == b"wait"
    assert worker.process.memory_info().rss < before + 50 * MIB


def test_only_so_many_servers_wait_for_an_engine(pair: tuple[Worker, TinyServer], worker: Worker) -> None:
    most = limits.WAITING_SERVERS.whole
    with ExitStack() as stack:
        kinds = []
        for _ in range(most + 3):
            peer = stack.enter_context(worker.with_keys())
            peer.send_multipart([b"hello", HELLO])
            assert peer.poll(20_000)
            kinds.append(peer.recv_multipart()[0])
            stack.callback(peer.send_multipart, [b"bye", b""])
        assert kinds == [b"wait"] * most + [b"refused"] * 3
        beside(pair, lambda: None)
    time.sleep(0.5)


def test_a_message_of_more_than_the_most_closes_its_connection(
    pair: tuple[Worker, TinyServer], worker: Worker
) -> None:
    before = worker.process.memory_info().rss
    with worker.with_keys() as peer:

        def attack() -> None:
            peer.send_multipart([b"command", b"x" * (limits.WORKER_MESSAGE.whole + MIB)])
            time.sleep(2)

        beside(pair, attack)
        peer.disconnect(worker.url)
    assert worker.process.memory_info().rss < before + 2 * limits.WORKER_MESSAGE.whole


def test_commands_of_the_engine_s_own_server_that_cannot_be_read_are_left_out(tmp_path: Path) -> None:
    worker = Worker(tmp_path)
    try:
        with worker.with_keys() as peer:
            peer.send_multipart([b"hello", HELLO])
            until_kind(peer, b"events")  # the engine is ready
            (engine,) = worker.process.children()
            for content in (
                b"",
                b"\xc1",
                b"\x81\xa4type\xa7explode",
                b"\x93\x01\x02\x03",
                b"\x80",
                b"x" * MIB,
            ):
                peer.send_multipart([b"command", content])
                peer.send_multipart([b"sent", content])
            peer.send_multipart([b"bye", b""])
        with worker.with_keys() as peer:
            peer.send_multipart([b"hello", HELLO])
            until_kind(peer, b"events")
            assert worker.process.children() == [engine]
    finally:
        worker.end()
    assert "Traceback" not in worker.text()
    assert worker.text().count("a command that cannot be read is left out") >= 5


@pytest.mark.parametrize("changes", ["{", "7", "[]", '{"no_such": 1}', '{"scheduler": "none"}', "{}"])
def test_an_engine_that_cannot_be_wanted_leaves_the_one_that_is(tmp_path: Path, changes: str) -> None:
    worker = Worker(tmp_path)
    try:
        with worker.with_keys() as peer:
            peer.send_multipart(
                [b"hello", json.dumps({"version": own_version(), "changes": changes}).encode()]
            )
            until_kind(peer, b"died")
        with worker.with_keys() as peer:
            peer.send_multipart([b"hello", HELLO])
            until_kind(peer, b"events")
    finally:
        worker.end()
    assert "Traceback" not in worker.text(), worker.text()


def until_kind(peer: zmq.Socket[bytes], kind: bytes) -> None:
    while True:
        assert peer.poll(60_000)
        if peer.recv_multipart()[0] == kind:
            return
