"""More requests than the server may hold, while its engine says nothing."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
from tiny_server import PROMPT, TinyServer, serving


@pytest.fixture(scope="module")
def narrow() -> Iterator[TinyServer]:
    """A server that may hold ten requests."""
    with serving("--kv-memory", "64MiB", "--max-waiting", "6", "--max-num-seqs", "4") as server:
        yield server


def test_requests_do_not_pile_up_while_the_engine_hangs(narrow: TinyServer) -> None:
    """The engine alone counted them, and an engine that hangs counts nothing."""
    (engine,) = narrow.process.children()
    os.kill(engine.pid, signal.SIGSTOP)
    try:
        with ThreadPoolExecutor(40) as pool:
            asked = [pool.submit(narrow.post, "/v1/completions", PROMPT) for _ in range(40)]
            while sum(answer.done() for answer in asked) < 30:
                time.sleep(0.05)
            time.sleep(0.5)
            refused = [answer.result() for answer in asked if answer.done()]
            assert narrow.health() < 5
            os.kill(engine.pid, signal.SIGCONT)
            held = [answer.result() for answer in asked if answer.result() not in refused]
    finally:
        os.kill(engine.pid, signal.SIGCONT)
    assert (len(refused), len(held)) == (30, 10)
    assert {(answer.status_code, answer.headers["Retry-After"]) for answer in refused} == {(503, "1")}
    served = [answer.json()["choices"][0]["text"] for answer in held if answer.status_code == 200]
    assert len(served) >= 6 and set(served) == {narrow.tokens}  # the engine lets no more than six wait
    narrow.check()


def test_requests_do_not_pile_up_while_the_engine_restarts(narrow: TinyServer) -> None:
    (engine,) = narrow.process.children()
    os.kill(engine.pid, signal.SIGKILL)
    with ThreadPoolExecutor(40) as pool:
        answers = list(pool.map(lambda _: narrow.post("/v1/completions", PROMPT), range(40)))
    statuses = [answer.status_code for answer in answers]
    assert set(statuses) == {200, 503} and statuses.count(200) >= 6
    narrow.check()
