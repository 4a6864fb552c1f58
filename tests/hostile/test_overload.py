"""More requests than the server may hold, while its engine says nothing."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest
from running_server import eventually
from tiny_server import PROMPT, TinyServer, serving

POLICY = """
from turnout import AdmissionPolicy, Refusal, hookimpl

class ByName(AdmissionPolicy):
    def admit(self, request, load):
        if request.client == "faulty":
            raise RuntimeError("oops")
        return Refusal("not you", 17.2) if request.client == "greedy" else None

@hookimpl
def register_admissions(register):
    register("by-name", ByName)
"""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TinyServer]:
    """It may hold ten requests; its admission policy refuses one client, and fails at another."""
    folder = tmp_path_factory.mktemp("plugins")
    (folder / "turnout_plugins.py").write_text(POLICY)
    policy = ("--plugins-folder", str(folder), "--admission", "by-name")
    with serving("--kv-memory", "64MiB", "--max-waiting", "6", "--max-num-seqs", "4", *policy) as server:
        yield server


def test_requests_do_not_pile_up_while_the_engine_hangs(server: TinyServer) -> None:
    """The engine alone counted them, and an engine that hangs counts nothing."""
    (engine,) = server.process.children()
    os.kill(engine.pid, signal.SIGSTOP)
    try:
        with ThreadPoolExecutor(40) as pool:
            asked = [pool.submit(server.post, "/v1/completions", PROMPT) for _ in range(40)]
            while sum(answer.done() for answer in asked) < 30:
                time.sleep(0.05)
            time.sleep(0.5)
            refused = [answer.result() for answer in asked if answer.done()]
            assert server.health() < 5
            os.kill(engine.pid, signal.SIGCONT)
            held = [answer.result() for answer in asked if answer.result() not in refused]
    finally:
        os.kill(engine.pid, signal.SIGCONT)
    assert (len(refused), len(held)) == (30, 10)
    assert {(answer.status_code, answer.headers["Retry-After"]) for answer in refused} == {(503, "1")}
    served = [answer.json()["choices"][0]["text"] for answer in held if answer.status_code == 200]
    assert len(served) >= 6 and set(served) == {server.tokens}  # the engine lets no more than six wait
    server.check()


@pytest.mark.slow
def test_requests_do_not_pile_up_while_the_engine_restarts(server: TinyServer) -> None:
    (engine,) = server.process.children()
    os.kill(engine.pid, signal.SIGKILL)
    with ThreadPoolExecutor(40) as pool:
        answers = list(pool.map(lambda _: server.post("/v1/completions", PROMPT), range(40)))
    statuses = [answer.status_code for answer in answers]
    assert set(statuses) == {200, 503} and statuses.count(200) >= 6
    server.check()


def asked(server: TinyServer, user: str, path: str = "/v1/completions", **body: object) -> httpx.Response:
    return server.post(path, {**PROMPT, "user": user, **body})


def test_a_refusal_reaches_the_client_with_its_time(server: TinyServer) -> None:
    messages = [{"role": "user", "content": "hi"}]
    for refused in (
        asked(server, "greedy"),
        asked(server, "greedy", stream=True),
        asked(server, "greedy", prompt=["a", "b"], n=2),
        server.post("/v1/chat/completions", {"messages": messages, "user": "greedy", "stream": True}),
    ):
        assert (refused.status_code, refused.headers["Retry-After"]) == (503, "18"), refused.text
        assert refused.json()["error"]["message"] == "not you"
        assert refused.json()["error"]["code"] == "overloaded"
    server.check()


def test_an_admission_policy_that_fails_refuses_no_request(server: TinyServer) -> None:
    served = asked(server, "faulty")
    assert served.json()["choices"][0]["text"] == server.tokens
    named = "admission 'by-name' of turnout_plugins.py: admit failed: RuntimeError: oops"
    eventually(lambda: f"{named}; the request is taken on" in server.text())
    server.health()
    assert server.answer() == server.tokens
