"""More clients than the system lets a server have files open: they wait, and every one is answered."""

from __future__ import annotations

import asyncio
import resource
import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest
from test_serve import Launch, launch

from turnout.config import ServerConfig
from turnout.core.errors import TurnoutError
from turnout.server.http.connections import accepting
from turnout.server.http.connections.accepting import (
    RESERVED_DESCRIPTORS,
    check_open_files,
    take_connections,
    usable_descriptors,
)
from turnout.server.http.connections.waiting import WaitingConnections

__all__ = ["launch"]

LIMIT = RESERVED_DESCRIPTORS + 16


@pytest.fixture
def limits() -> Iterator[tuple[int, int]]:
    """Of open files, soft and hard; as they were, afterwards."""
    found = resource.getrlimit(resource.RLIMIT_NOFILE)
    yield found
    resource.setrlimit(resource.RLIMIT_NOFILE, found)


def few_files() -> None:
    resource.setrlimit(resource.RLIMIT_NOFILE, (LIMIT, LIMIT))


def test_more_clients_than_descriptors_are_all_answered(launch: Launch, folder: Path) -> None:
    """Half of 500 got a 500, and the log 14,000 tracebacks."""
    server = launch(folder, preexec_fn=few_files)
    url = f"{server.url()}/v1/completions"

    def ask(number: int) -> str:
        body = {"prompt": f"{number:02}", "max_tokens": 20, "user": "slow"}
        return client.post(url, json=body).json()["choices"][0]["text"]

    alone = httpx.Limits(max_connections=None, max_keepalive_connections=0)
    with httpx.Client(timeout=30, limits=alone) as client, ThreadPoolExecutor(32) as pool:
        assert list(pool.map(ask, range(32))) == [f"{number:02}" * 10 for number in range(32)]
    assert server.text().count("connections are open, the most that") == 1
    assert "Traceback" not in server.text()


def test_what_is_written_is_sent_at_once() -> None:
    """A response of two writes took 40 ms more, until the client had acknowledged the first."""

    class Accepted(asyncio.Protocol):
        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            made.set_result(transport.get_extra_info("socket"))

    async def accepted() -> int:
        nonlocal made
        made = asyncio.get_running_loop().create_future()
        with socket.create_server(("127.0.0.1", 0)) as listener:
            taking = asyncio.create_task(take_connections(listener, Accepted, set(), 8, WaitingConnections()))
            with socket.create_connection(listener.getsockname()):
                option: int = (await made).getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
            taking.cancel()
        return option

    made: asyncio.Future[socket.socket]
    assert asyncio.run(accepted())


def test_connections_that_come_at_once_are_accepted_in_a_few_turns_of_the_loop() -> None:
    """With one a turn, the last of a hundred, which may ask for `/health`, waited for a hundred turns."""

    class Accepted(asyncio.Protocol):
        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            made.append(transport)

    async def turns() -> int:
        with socket.create_server(("127.0.0.1", 0), backlog=128) as listener:
            clients = [socket.create_connection(listener.getsockname()) for _ in range(100)]
            taking = asyncio.create_task(
                take_connections(listener, Accepted, made, 960, WaitingConnections())
            )
            count = 0
            while len(made) < 100:
                await asyncio.sleep(0)
                count += 1
            taking.cancel()
            _close(made, clients)
        return count

    made: list[asyncio.BaseTransport] = []
    assert asyncio.run(turns()) < 30


def test_no_more_connections_are_accepted_than_there_may_be() -> None:
    class Accepted(asyncio.Protocol):
        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            made.append(transport)

    async def accepted() -> int:
        with socket.create_server(("127.0.0.1", 0), backlog=128) as listener:
            clients = [socket.create_connection(listener.getsockname()) for _ in range(50)]
            taking = asyncio.create_task(take_connections(listener, Accepted, made, 8, WaitingConnections()))
            while len(made) < 8:
                await asyncio.sleep(0.01)
            await asyncio.sleep(0.1)
            taking.cancel()
            _close(made, clients)
        return len(made)

    made: list[asyncio.BaseTransport] = []
    assert asyncio.run(accepted()) == 8


def _close(made: list[asyncio.BaseTransport], clients: list[socket.socket]) -> None:
    for transport in made:
        transport.close()
    for client in clients:
        client.close()


def test_the_limit_is_raised_as_far_as_it_may_be(limits: tuple[int, int]) -> None:
    resource.setrlimit(resource.RLIMIT_NOFILE, (256, limits[1]))
    most = usable_descriptors()
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    assert soft > 256 and hard == limits[1] and most == soft - RESERVED_DESCRIPTORS


def test_too_few_open_files_refuse_the_start(monkeypatch: pytest.MonkeyPatch) -> None:
    """The server started under `ulimit -n 64`, and served a single connection at a time."""
    monkeypatch.setattr(accepting, "_open_files", lambda: 64)
    with pytest.raises(
        TurnoutError, match=r"may open 64 files here, but the server needs 80 or more.*`ulimit -n"
    ):
        check_open_files(ServerConfig())
    monkeypatch.setattr(accepting, "_open_files", lambda: 80)
    check_open_files(ServerConfig())


@pytest.mark.parametrize(
    ("asked", "told"), [({"max_connections": 500}, 1), ({"max_connections": 64}, 0), ({}, 0)]
)
def test_max_connections_that_are_cut_are_told(
    asked: dict[str, int], told: int, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(accepting, "_open_files", lambda: 128)
    check_open_files(ServerConfig(**asked))  # type: ignore[arg-type]
    assert (
        caplog.text.count("--max-connections 500 is cut to 64, as a process may open 128 files here") == told
    )
