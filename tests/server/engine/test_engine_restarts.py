"""An engine that dies loses no request: another takes over, and each goes on after its last token."""

from __future__ import annotations

import os
import signal
import time
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import httpx
import pytest
from asking import COMPLETIONS, events
from running_server import RunningServer, Start, eventually

from turnout.config import EngineConfig
from turnout.server.api import health
from turnout.server.engine import process as engine_process
from turnout.server.engine.channel import ServerChannel
from turnout.server.engine.process import EngineProcess
from turnout.server.engine.streams.restart_limit import WINDOW_SECONDS, RestartLimit

Answers = list[Future[httpx.Response]]


def kill(server: RunningServer, how: signal.Signals = signal.SIGKILL) -> None:
    os.kill(server.client.pid, how)


def tokens(server: RunningServer) -> int:
    """Delivered so far, to all requests that live."""
    streams = list(server.client.streams.unfinished)
    return sum(len(output) for stream in streams for output in stream.outputs.values())


def text(chunks: list[dict[str, Any]], index: int = 0) -> str:
    choices = [choice for chunk in chunks for choice in chunk["choices"]]
    return "".join(choice["text"] for choice in choices if choice["index"] == index)


def test_another_engine_takes_the_kernels_that_the_first_one_chose(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Other kernels round otherwise, and a stream that goes on would change."""
    given: list[str] = []
    configure = EngineProcess.configure

    def noted(process: EngineProcess, config: str) -> None:
        given.append(EngineConfig.model_validate_json(config).cpu_kernels)
        configure(process, config)

    monkeypatch.setattr(EngineProcess, "configure", noted)
    server = start()
    kill(server)
    eventually(lambda: server.client.restarting)
    eventually(lambda: not server.client.restarting, 15)
    assert given == ["auto", "torch"]


@pytest.mark.parametrize("mood", [pytest.param("slow", marks=pytest.mark.slow), "brisk"])
def test_a_stream_goes_on_where_it_was(start: Start, mood: str) -> None:
    """No token lost, repeated or changed, twice over; and so for answers in one piece."""
    server = start()
    body = {"prompt": "abcdefg", "max_tokens": 200, "n": 2, "logprobs": 1, "user": mood}
    with ThreadPoolExecutor(2) as pool:
        stream = pool.submit(events, server, COMPLETIONS, stream_options={"include_usage": True}, **body)
        whole = pool.submit(server.post, COMPLETIONS, **body)
        for count in (20, 200):
            eventually(lambda count=count: tokens(server) > count)
            kill(server)
            eventually(lambda: server.client.restarting)
            eventually(lambda: not server.client.restarting, 15)
        expected = [("abcdefg" * 40)[index:][:200] for index in range(2)]
        chunks, answer = stream.result(60), whole.result(60).json()
    assert [text(chunks, index) for index in range(2)] == expected
    assert [choice["text"] for choice in answer["choices"]] == expected
    assert {choice["finish_reason"] for choice in answer["choices"]} == {"length"}
    assert [len(choice["logprobs"]["tokens"]) for choice in answer["choices"]] == [200, 200]
    assert chunks[-1]["usage"] == answer["usage"]
    assert answer["usage"]["completion_tokens"] == 400
    assert server.client.restarts == 2


def test_who_waits_and_who_comes_meanwhile_is_served_too(start: Start) -> None:
    server = start(engine={"max_num_seqs": 2})
    with ThreadPoolExecutor(12) as pool:
        answers: Answers = [
            pool.submit(server.post, COMPLETIONS, prompt=f"{i}", max_tokens=30, user="slow") for i in range(6)
        ]
        eventually(lambda: tokens(server) > 10)
        kill(server)
        eventually(lambda: server.client.restarting)
        health = server.http.get("/health")
        assert health.status_code == 503 and health.json()["status"] == "restarting"
        answers += [pool.submit(server.post, COMPLETIONS, prompt=f"{i}", max_tokens=30) for i in range(6, 9)]
        texts = [answer.result(30).json()["choices"][0]["text"] for answer in answers]
    assert texts == [str(i) * 30 for i in range(9)]
    assert server.http.get("/health").status_code == 200


def test_a_request_that_arrives_before_the_engine_is_known_to_have_died_is_served(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They got 500: the socket had lost its other end, and the process had not been missed yet."""
    monkeypatch.setattr(engine_process, "LAST_MESSAGE_SECONDS", 0.6)
    monkeypatch.setattr(ServerChannel, "left", False)
    server = start()
    kill(server)
    time.sleep(0.2)
    assert not server.client.restarting
    with ThreadPoolExecutor(4) as pool:
        answers = list(pool.map(lambda i: server.post(COMPLETIONS, prompt=f"{i}", max_tokens=9), range(4)))
    assert [answer.json()["choices"][0]["text"] for answer in answers] == [str(i) * 9 for i in range(4)]
    assert server.client.restarts == 1


def test_an_engine_that_hangs_is_told_by_health(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    """All requests waited for ever, and health was well."""
    monkeypatch.setattr(health, "STUCK_SECONDS", 0.5)
    server = start()
    assert server.post(COMPLETIONS, prompt="a", max_tokens=2).status_code == 200
    os.kill(server.client.pid, signal.SIGSTOP)
    time.sleep(0.6)
    assert server.http.get("/health").status_code == 200  # no client waits
    with ThreadPoolExecutor(1) as pool:
        answer = pool.submit(server.post, COMPLETIONS, prompt="a", max_tokens=2)
        eventually(lambda: server.http.get("/health").json()["status"] == "stuck")
        assert server.http.get("/health").status_code == server.http.get("/live").status_code == 503
        os.kill(server.client.pid, signal.SIGCONT)
        assert answer.result(5).status_code == 200
    assert server.http.get("/health").status_code == server.http.get("/live").status_code == 200


def test_what_an_engine_did_after_its_answer_was_given_up_outlasts_it(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The policy and the pin were there until the engine died; a prefix unpinned so was pinned again."""
    server = start()
    pin = {"prompt": "x" * 64, "compute": False}
    assert server.post("/admin/prefixes", name="old", **pin).status_code == 200
    monkeypatch.setattr("turnout.server.engine.replies.ADMIN_TIMEOUT_SECONDS", 0.05)
    os.kill(server.client.pid, signal.SIGSTOP)
    late = [
        server.post("/admin/scheduler", name="ljf"),
        server.post("/admin/prefixes", name="new", **pin),
        server.http.delete("/admin/prefixes/old"),
    ]
    os.kill(server.client.pid, signal.SIGCONT)
    assert [answer.status_code for answer in late] == [504, 504, 504]
    monkeypatch.undo()

    def told() -> tuple[str, list[str]]:
        pinned = server.http.get("/admin/prefixes").json()["prefixes"]
        policy = server.http.get("/admin/scheduler").json()["scheduler"]
        return policy, [prefix["name"] for prefix in pinned]

    assert told() == ("ljf", ["new"])
    kill(server)
    eventually(lambda: server.client.restarts == 1 and not server.client.restarting, 15)
    assert told() == ("ljf", ["new"])


def test_a_choice_that_has_ended_is_not_begun_again(start: Start) -> None:
    """One choice meets its stop string before the engine dies, the other goes on after."""
    server = start()
    body = {"prompt": "abcd", "n": 2, "stop": "da", "max_tokens": 60, "user": "slow", "ignore_eos": True}
    with ThreadPoolExecutor(1) as pool:
        answer = pool.submit(server.post, COMPLETIONS, **{**body, "stop": "dab", "timing": True})
        eventually(lambda: any(stream.done for stream in server.client.streams.unfinished))
        kill(server)
        choices = answer.result(30).json()
    assert [choice["text"] for choice in choices["choices"]] == ["abc", "bc"]
    assert choices["timing"]["first_token_ms"] <= choices["timing"]["finished_ms"]


@pytest.mark.parametrize("mood", ["killed", pytest.param("failing", marks=pytest.mark.slow)])
def test_the_request_that_kills_is_found_and_no_other_suffers(start: Start, mood: str) -> None:
    server = start()
    with ThreadPoolExecutor(8) as pool:
        answers: Answers = [
            pool.submit(server.post, COMPLETIONS, prompt=f"{i}", max_tokens=100, user="slow")
            for i in range(5)
        ]
        eventually(lambda: tokens(server) > 10)
        murderer = pool.submit(server.post, COMPLETIONS, prompt="x", max_tokens=5, user=mood)
        response = murderer.result(60)
        texts = [answer.result(60).json()["choices"][0]["text"] for answer in answers]
    assert response.status_code == 500
    assert "died each time that it served this request alone: " in response.json()["error"]["message"]
    assert texts == [str(i) * 100 for i in range(5)]
    assert server.client.restarts == 3, "once with others, twice alone"


def test_a_client_that_leaves_meanwhile_is_forgotten(start: Start) -> None:
    server = start()
    with httpx.stream(
        "POST",
        f"{server.url}{COMPLETIONS}",
        json={"prompt": "a", "max_tokens": 400, "stream": True, "user": "slow"},
    ) as response:
        next(response.iter_lines())
        kill(server)
        eventually(lambda: server.client.restarting)
    eventually(lambda: not server.client.streams)
    eventually(lambda: not server.client.restarting, 15)
    assert server.post(COMPLETIONS, prompt="ab", max_tokens=4).json()["choices"][0]["text"] == "abab"
    eventually(lambda: server.work() == 0)


def test_the_policy_chosen_last_stays(start: Start) -> None:
    server = start()
    assert server.post("/admin/scheduler", name="sjf").status_code == 200
    kill(server)
    eventually(lambda: server.client.restarting)
    assert server.http.get("/admin/scheduler").status_code == 503
    eventually(lambda: not server.client.restarting, 15)
    assert server.http.get("/admin/scheduler").json()["scheduler"] == "sjf"


def test_one_that_cannot_live_is_given_up(start: Start) -> None:
    server = start(engine_restarts=1)
    kill(server, signal.SIGSEGV)
    eventually(lambda: server.client.restarting)
    eventually(lambda: not server.client.restarting, 15)
    kill(server, signal.SIGSEGV)
    eventually(lambda: server.client.failure)
    assert server.post(COMPLETIONS, prompt="a").status_code == 503
    time.sleep(0.5)
    assert server.client.restarts == 1


def test_restarts_are_counted_within_a_window() -> None:
    now = [0.0]
    restarts = RestartLimit(2, lambda: now[0])
    assert [restarts.allow() for _ in range(3)] == [True, True, False]
    now[0] = WINDOW_SECONDS + 1
    assert restarts.allow() and restarts.count == 3
    restarts.forbid()
    assert not restarts.allow() and not restarts.allow(counts=False)


def test_restarts_that_do_not_count_are_not_limited_but_come_ever_slower() -> None:
    now = [0.0]
    restarts = RestartLimit(1, lambda: now[0])
    pauses = []
    for _ in range(10):
        assert restarts.allow(counts=False)
        pauses.append(restarts.pause)
    assert pauses == [0, 0.25, 0.5, 1, 2, 4, 8, 16, 30, 30]
    now[0] = 61
    assert restarts.allow() and restarts.pause == 0
    assert not restarts.allow()


def test_restarts_are_forgiven_once_their_reason_is_gone() -> None:
    restarts = RestartLimit(2, lambda: 0.0)
    assert [restarts.allow() for _ in range(3)] == [True, True, False]
    restarts.forgive(5)
    assert [restarts.allow() for _ in range(3)] == [True, True, False]
