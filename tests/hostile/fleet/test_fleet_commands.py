"""Commands to replicas and rollouts that make no sense, or come too often: refused, and streams go on."""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any

import httpx
import pytest
from click.testing import CliRunner
from tiny_server import TinyServer, serving

from turnout.cli.main import cli

pytestmark = pytest.mark.slow
REPLICAS, ROLLOUT = "/admin/replicas", "/admin/rollout"
BIG = 10**400
STREAM = {"prompt": "import os\n", "max_tokens": 300, "stream": True, "ignore_eos": True, "temperature": 0}


@pytest.fixture(scope="module")
def fleet() -> Iterator[TinyServer]:
    with serving("--kv-memory", "64MiB", "--replicas", "2") as server:
        yield server


@pytest.fixture
def server(fleet: TinyServer) -> Iterator[TinyServer]:
    """Found with two replicas that serve, and otherwise unharmed, when the test has ended."""
    yield fleet
    until(lambda: [each["state"] for each in replicas(fleet)] == ["serving"] * 2)
    fleet.check()


def replicas(server: TinyServer) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = httpx.get(server.url + REPLICAS).json()["replicas"]
    return found


def rollout(server: TinyServer) -> dict[str, Any]:
    found: dict[str, Any] = httpx.get(server.url + ROLLOUT).json()
    return found


def until(true: Callable[[], object], seconds: float = 120) -> None:
    deadline = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < deadline, "it never happened"
        time.sleep(0.05)


NONSENSE: list[tuple[str, object, int]] = [
    (REPLICAS, {}, 400),
    (REPLICAS, {"action": "explode"}, 400),
    (REPLICAS, {"action": "add", "replica": "0"}, 400),
    (REPLICAS, {"action": "drain"}, 400),
    (REPLICAS, {"action": "drain", "replica": 0}, 400),
    (REPLICAS, {"action": "drain", "replica": "\0"}, 409),
    (REPLICAS, {"action": "remove", "replica": "x" * 100_000}, 409),
    (REPLICAS, {"action": "restart", "replica": "../0"}, 409),
    (REPLICAS, {"action": "restart", "replica": "0", "force": True}, 400),
    (REPLICAS, [{"action": "add"}] * 64, 400),
    (ROLLOUT, {"action": "start"}, 400),
    (ROLLOUT, {"action": "start", "changes": {}}, 400),
    (ROLLOUT, {"action": "start", "changes": []}, 400),
    (ROLLOUT, {"action": "start", "changes": {"max_num_seqs": BIG}}, 400),
    (ROLLOUT, {"action": "start", "changes": {"max_num_seqs": 1e308}}, 400),
    (ROLLOUT, {"action": "start", "changes": {"scheduler": "mlfq:levels=-1"}}, 400),
    (ROLLOUT, {"action": "start", "changes": {"scheduler": "\ud83d"}}, 400),
    (ROLLOUT, {"action": "start", "changes": {"__class__": "x"}}, 400),
    (ROLLOUT, {"action": "start", "changes": {"admin_key": ["mine"]}}, 400),
    (ROLLOUT, {"action": "start", "changes": {"chat_template": "{{ 7 * 7 }}"}}, 400),
    (ROLLOUT, {"action": "start", "changes": {f"option_{n}": n for n in range(5000)}}, 400),
    (ROLLOUT, {"action": "start", "changes": {"scheduler": "fcfs"}, "drain_timeout": -1}, 400),
    (ROLLOUT, {"action": "start", "changes": {"scheduler": "fcfs"}, "drain_timeout": BIG}, 400),
    (ROLLOUT, {"action": "pause", "changes": {"scheduler": "fcfs"}}, 400),
]


@pytest.mark.parametrize(("path", "body", "status"), NONSENSE, ids=range(len(NONSENSE)))
def test_nonsense_is_refused_and_changes_nothing(
    server: TinyServer, path: str, body: object, status: int
) -> None:
    content = json.dumps(body, ensure_ascii=True).encode()
    answer = server.post(path, content)
    assert answer.status_code == status, answer.text
    error = answer.json()["error"]
    assert error["type"] != "server_error" and "Traceback" not in error["message"]
    assert [each["name"] for each in replicas(server)] == ["0", "1"]


@pytest.mark.parametrize(
    "changes",
    [
        {"model": "/etc/passwd"},
        {"model": "a\0b"},
        {"model": "../" * 200},
        {"model": "x" * 10_000},
        {"max_model_len": 8},
        {"kv_memory": "1KiB"},
    ],
    ids=lambda changes: repr(changes)[:40],
)
def test_engines_that_cannot_be_leave_those_that_are(server: TinyServer, changes: dict[str, object]) -> None:
    """Refused at once, or undone; either way the reason is told, and another rollout can follow."""
    names = [each["name"] for each in replicas(server)]
    answer = server.post(ROLLOUT, {"action": "start", "changes": changes})
    if answer.status_code == 200:
        until(lambda: rollout(server)["state"] not in ("rolling", "undoing"))
        report = rollout(server)
        assert report["state"] == "undone", report
        assert report["reason"] and "internal error" not in report["reason"], report
    else:
        assert answer.status_code == 400, answer.text
        assert answer.json()["error"]["param"] == "changes"
    assert [each["name"] for each in replicas(server)] == names
    again = server.post(ROLLOUT, {"action": "start", "changes": {"no_such_option": 1}})
    assert again.status_code == 400, "the one before has ended"


def streamed(server: TinyServer) -> str:
    text = ""
    with httpx.stream("POST", f"{server.url}/v1/completions", json=STREAM, timeout=120) as answer:
        for line in answer.iter_lines():
            if line.startswith("data: {"):
                event = json.loads(line[6:])
                assert "error" not in event, event
                text += event["choices"][0]["text"]
    return text


def test_a_hundred_restarts_of_a_replica_leave_one_of_its_name(server: TinyServer) -> None:
    """Two at once started two engines of one name."""
    alone = streamed(server)
    with ThreadPoolExecutor(24) as pool:
        streams = [pool.submit(streamed, server) for _ in range(4)]
        body = {"action": "restart", "replica": replicas(server)[0]["name"]}
        answers = [pool.submit(server.post, REPLICAS, body) for _ in range(100)]
        assert {answer.result().status_code for answer in answers} == {200, 409}
        assert [stream.result() for stream in streams] == [alone] * 4
    until(lambda: [each["state"] for each in replicas(server)] == ["serving"] * 2)
    assert len({each["name"] for each in replicas(server)}) == 2


def test_commands_from_many_clients_at_once_leave_a_server_that_serves(server: TinyServer) -> None:
    alone = streamed(server)
    steps = [{"action": action} for action in ("pause", "resume", "undo")]
    steps += [{"action": "start", "changes": {"scheduler": name}} for name in ("sjf", "fcfs")]
    with ThreadPoolExecutor(24) as pool:
        streams = [pool.submit(streamed, server) for _ in range(4)]
        rolled = [pool.submit(server.post, ROLLOUT, step) for step in steps * 8]
        removed = [
            pool.submit(server.post, REPLICAS, {"action": "remove", "replica": name}) for name in "01" * 4
        ]
        assert {answer.result().status_code for answer in rolled} <= {200, 409}
        assert {answer.result().status_code for answer in removed} <= {200, 409}
        assert [stream.result() for stream in streams] == [alone] * 4
    if rollout(server)["state"] not in ("none", "done", "undone"):
        with suppress(AssertionError):
            until(lambda: rollout(server)["state"] in ("done", "undone"), 60)
        if rollout(server)["state"] not in ("done", "undone"):
            undone = server.post(ROLLOUT, {"action": "undo"})
            if undone.status_code == 409:  # it is being undone, and paused
                assert server.post(ROLLOUT, {"action": "resume"}).status_code == 200, undone.text
            until(lambda: rollout(server)["state"] == "undone")
    for _ in range(2 - len(replicas(server))):
        assert server.post(REPLICAS, {"action": "add"}).status_code == 200


ANSWERS = {
    "no HTTP": b"\x00\xff" * 1000,
    "no JSON": b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n<html",
    "a list": b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n[]",
    "another object": b'HTTP/1.1 200 OK\r\nContent-Length: 8\r\n\r\n{"a": 1}',
    "an odd error": b'HTTP/1.1 500 X\r\nContent-Length: 14\r\n\r\n{"error": "e"}',
    "no end": b"HTTP/1.1 200 OK\r\n\r\n" + b'{"state": "' + b"x" * 50_000_000,
}


@pytest.mark.parametrize("answer", ANSWERS)
def test_a_server_that_answers_nonsense_is_named_by_the_command(answer: str) -> None:
    def serve() -> None:
        connection, _ = listener.accept()
        with connection, suppress(OSError):
            connection.recv(65536)
            connection.sendall(ANSWERS[answer])

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=serve)
        thread.start()
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        result = CliRunner().invoke(cli, ["rollout", "--url", url, "--status"])
        thread.join(60)
    assert result.exit_code == 1 and url in result.output, result.output
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    assert "Traceback" not in result.output and len(result.output) < 2000
