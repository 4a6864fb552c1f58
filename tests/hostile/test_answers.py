"""Answers of which the server must keep much until it can send them."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from typing import Any

import pytest
from tiny_server import TinyServer, read_all, serving

COMPLETIONS = "/v1/completions"
SCORED = {"prompt": [7] * 1900, "prompt_logprobs": 20, "max_tokens": 1}


@pytest.fixture(scope="module")
def roomy() -> Iterator[TinyServer]:
    """With memory for many choices, and little for what clients make it keep."""
    with serving("--kv-memory", "512MiB", "--request-memory", "1536KiB") as server:
        yield server


def most_memory(server: TinyServer, done: threading.Event) -> int:
    """The most that the server's process takes until `done`."""
    most = 0
    while not done.wait(0.01):
        most = max(most, server.memory())
    return most


def test_an_answer_is_never_in_memory_as_a_whole(roomy: TinyServer) -> None:
    """A prompt's log-probabilities for each of 95 choices took 1.8 GB for a response of 270 MB."""
    done, before = threading.Event(), roomy.memory()
    with ThreadPoolExecutor(1) as pool:
        weighing = pool.submit(most_memory, roomy, done)
        response = roomy.post(COMPLETIONS, {**SCORED, "n": 12})
        done.set()
    assert response.status_code == 200 and len(response.content) > 30e6
    scores = [choice["prompt_logprobs"] for choice in response.json()["choices"]]
    assert len(scores) == 12 and all(score == scores[0] for score in scores)
    assert len(scores[0]) == 1900 and scores[0][0] is None
    assert weighing.result() - before < 60e6
    roomy.check()


def test_the_answers_of_many_clients_take_a_bounded_memory(roomy: TinyServer) -> None:
    """Two that are not read take the memory that there is: the largest ends for a smaller one."""
    with ExitStack() as stack:
        clients = [stack.enter_context(unread(roomy, {**SCORED, "n": n})) for n in (3, 4)]
        assert [client.recv(15, socket.MSG_WAITALL) for client in clients] == [b"HTTP/1.1 200 OK"] * 2
        third = roomy.post(COMPLETIONS, SCORED)
        assert roomy.answer() == roomy.tokens
        endings = [read_all(client)[-5:] == b"0\r\n\r\n" for client in clients]
    assert third.status_code == 200 and endings.count(False) == 1
    roomy.check()


@contextmanager
def unread(server: TinyServer, body: dict[str, Any]) -> Iterator[socket.socket]:
    """The connection of a client that has asked, and has not read."""
    content = json.dumps(body).encode()
    head = "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
    head += f"Content-Type: application/json\r\nContent-Length: {len(content)}\r\n\r\n"
    with socket.socket() as connection:
        connection.settimeout(60)
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        connection.connect(("127.0.0.1", server.port))
        connection.sendall(head.encode() + content)
        yield connection


def test_many_prompts_take_a_bounded_memory(roomy: TinyServer) -> None:
    """Ten requests with a million tokens each took 370 MB: only their texts were counted."""
    prompts = ["a b c d " * 200] * 250
    with ThreadPoolExecutor(6) as pool:
        sent = [pool.submit(roomy.post, COMPLETIONS, {"prompt": prompts, "max_tokens": 1}) for _ in range(4)]
    answers = [future.result() for future in sent]
    assert {answer.status_code for answer in answers} <= {200, 503}
    assert any(answer.status_code == 503 and "--request-memory" in answer.text for answer in answers)
    roomy.check()
