"""What a request tells the policy beside its text, what becomes of it, and when things happened to it."""

from __future__ import annotations

import hashlib
import os
import signal
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import openai
import pytest
from asking import CHAT, COMPLETIONS, events, text
from running_server import RunningServer, Start, eventually, running

from turnout.config import EngineConfig, ServerConfig
from turnout.core.types.messages import Abort
from turnout.text.tokenizer import Tokenizer

HI = [{"role": "user", "content": "hi"}]


@pytest.fixture(scope="module")
def strict(tokenizer: Tokenizer) -> Iterator[RunningServer]:
    """A server that gives up requests past their deadline."""
    config = EngineConfig(model="echo", scheduler="deadlines")
    with running(tokenizer, config, ServerConfig()) as server:
        yield server


# ------------------------------------------------------------------ fields


@pytest.mark.parametrize("field", ["deadline_ms", "ttft_deadline_ms"])
@pytest.mark.parametrize("value", [0, -1, "5", True, [1], -0.0])
def test_a_deadline_is_a_positive_number(server: RunningServer, field: str, value: object) -> None:
    for path, body in ((COMPLETIONS, {"prompt": "a"}), (CHAT, {"messages": HI})):
        response = server.post(path, **body, **{field: value})
        assert response.status_code == 400 and response.json()["error"]["param"] == field
        assert server.post(path, **body, max_tokens=1, **{field: 10**9}).status_code == 200
        assert server.post(path, **body, max_tokens=1, **{field: None}).status_code == 200


def test_timing_is_true_or_false(server: RunningServer) -> None:
    assert server.post(COMPLETIONS, prompt="a", timing=1).json()["error"]["param"] == "timing"
    for timing in (False, None):
        assert "timing" not in server.post(COMPLETIONS, prompt="a", timing=timing).json()


# ------------------------------------------------------------------ deadlines

LATE = {"prompt": "a", "max_tokens": 500, "user": "slow"}


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("field", ["deadline_ms", "ttft_deadline_ms"])
def test_a_request_that_is_given_up_gets_408(strict: RunningServer, stream: bool, field: str) -> None:
    """Dropped before it runs, so that a stream has not begun."""
    response = strict.post(COMPLETIONS, **{**LATE, field: 0.000001}, stream=stream)
    assert response.status_code == 408
    assert response.json()["error"] == {
        "message": "too late for slow",
        "type": "timeout_error",
        "param": None,
        "code": "request_dropped",
    }


def test_one_that_is_given_up_while_it_runs(strict: RunningServer) -> None:
    with ThreadPoolExecutor(2) as pool:
        other = pool.submit(strict.post, COMPLETIONS, prompt="ab", max_tokens=40)
        body = {**LATE, "deadline_ms": 800, "ttft_deadline_ms": 700, "timing": True, "n": 2}
        whole = pool.submit(strict.post, COMPLETIONS, **body)
        *begun, last = events(strict, COMPLETIONS, **body)
        assert last["error"]["code"] == "request_dropped"
        assert set(text(begun)) == {"a"} and len(text(begun)) > 2
        assert not any(choice["finish_reason"] for event in begun for choice in event["choices"])
        assert whole.result().status_code == 408
        assert other.result().json()["choices"][0]["text"] == "ab" * 20
    eventually(lambda: strict.work() == 0, 1)


def test_a_choice_that_has_ended_does_not_hide_that_the_others_are_given_up(strict: RunningServer) -> None:
    """The error names choice 0; a stop string has ended that, and the answer hung for ever."""
    body = {**LATE, "prompt": "abc" + "d" * 60, "n": 2, "max_tokens": 400, "stop": "abc", "deadline_ms": 200}
    assert strict.post(COMPLETIONS, **body).status_code == 408


def test_official_clients_do_not_repeat_it(strict: RunningServer) -> None:
    """A deadline that was missed would start anew, and the load with it."""
    requests: list[httpx.Request] = []
    with httpx.Client(event_hooks={"request": [requests.append]}) as http:
        client = openai.OpenAI(base_url=f"{strict.url}/v1", api_key="x", http_client=http, max_retries=2)
        with pytest.raises(openai.APIStatusError, match="too late") as caught:
            client.completions.create(model="echo", prompt="a", extra_body={"deadline_ms": 0.000001})
    assert caught.value.status_code == 408 and len(requests) == 1


# ------------------------------------------------------------------ whose it is


@pytest.mark.parametrize("path", [COMPLETIONS, CHAT])
def test_a_client_is_its_user_else_its_key(strict: RunningServer, path: str) -> None:
    digest = "key-" + hashlib.sha256(b"sk-12345").hexdigest()[:16]

    def client(user: str | None, authorization: str | None) -> str:
        headers = {} if authorization is None else {"Authorization": authorization}
        body = {"prompt": "a", "messages": HI, "user": user, "deadline_ms": 0.000001}
        response = strict.http.post(path, json=body, headers=headers)
        return response.json()["error"]["message"].removeprefix("too late for ")

    assert client("me", "Bearer sk-12345") == "me"
    assert client(None, "Bearer sk-12345") == digest
    assert client("", "bearer  sk-12345") == digest
    assert client(None, "Bearer sk-12346") != digest
    for nothing in (None, "", "Bearer", "Basic sk-12345"):
        assert client(None, nothing) == ""


# ------------------------------------------------------------------ timing


def check(timing: dict[str, Any]) -> None:
    """All of it there, and in order."""
    assert timing.keys() == {"queued_ms", "first_token_ms", "finished_ms", "preempted_ms"}
    assert 0 <= timing["queued_ms"] <= timing["first_token_ms"] <= timing["finished_ms"] < 20_000
    assert timing["preempted_ms"] == sorted(timing["preempted_ms"])


def test_timing_of_one_and_of_several_prompts(server: RunningServer) -> None:
    check(server.post(CHAT, messages=HI, max_tokens=3, timing=True).json()["timing"])
    for prompt in ("ab", ["ab"], [97, 98]):
        check(server.post(COMPLETIONS, prompt=prompt, n=2, timing=True).json()["timing"])
    body = {"prompt": ["ab", "c"], "max_tokens": 20, "user": "slow", "timing": True, "n": 2}
    timings = server.post(COMPLETIONS, **body).json()["timing"]
    assert len(timings) == 2
    for timing in timings:
        check(timing)
        assert timing["finished_ms"] > 19 * 20 and timing["first_token_ms"] < timing["finished_ms"] / 2


@pytest.mark.parametrize("usage", [False, True])
@pytest.mark.parametrize(("path", "body"), [(COMPLETIONS, {"prompt": ["a", "b"]}), (CHAT, {"messages": HI})])
def test_timing_of_a_stream_is_in_its_last_chunk(
    server: RunningServer, path: str, body: dict[str, Any], usage: bool
) -> None:
    options = {"stream_options": {"include_usage": True}} if usage else {}
    *chunks, last = events(server, path, **body, max_tokens=5, timing=True, **options)
    assert last["choices"] == [] and ("usage" in last) == usage
    timings = last["timing"] if path == COMPLETIONS else [last["timing"]]
    assert len(timings) == (2 if path == COMPLETIONS else 1)
    for timing in timings:
        check(timing)
    assert not any("timing" in chunk or not chunk["choices"] for chunk in chunks)


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    ("body", "texts"),
    [
        ({"prompt": "1a2a3", "stop": "a3"}, ["1a2"]),
        ({"prompt": "1a2a3", "stop": "a3", "max_tokens": 5}, ["1a2"]),
        ({"prompt": "1a2a3", "stop": "a3", "user": "slow"}, ["1a2"]),
        ({"prompt": "abc", "n": 3, "max_tokens": 7, "stop": "bcab"}, ["a", "", "ca"]),
        ({"prompt": "abc", "n": 3, "max_tokens": 5, "stop": "bcab"}, ["a", "", "cabca"]),
        ({"prompt": "abc", "n": 3, "max_tokens": 5, "stop": "cabca"}, ["abcab", "bcabc", ""]),
    ],
)
def test_timing_where_a_stop_string_ended_it(
    server: RunningServer, stream: bool, body: dict[str, Any], texts: list[str]
) -> None:
    """The engine does not know why, but still when: whichever of the two ended its last choice."""
    body = {"max_tokens": 400, **body, "timing": True}
    if stream:
        found = events(server, COMPLETIONS, **body)
        timing = found[-1]["timing"]
        choices = [choice for event in found for choice in event["choices"]]
        parts = [[c["text"] for c in choices if c["index"] == index] for index in range(len(texts))]
        assert ["".join(part) for part in parts] == texts
    else:
        answer = server.post(COMPLETIONS, **body).json()
        timing = answer["timing"]
        assert [choice["text"] for choice in answer["choices"]] == texts
    check(timing)
    eventually(lambda: server.work() == 0, 1)


def test_timing_tells_who_was_preempted_and_who_waited(tokenizer: Tokenizer) -> None:
    config = EngineConfig(model="echo", max_num_seqs=1, scheduler="shuffling")
    with running(tokenizer, config, ServerConfig()) as server, ThreadPoolExecutor(3) as pool:
        body = {"prompt": "a", "max_tokens": 20, "user": "slow", "timing": True}
        low = pool.submit(server.post, COMPLETIONS, **body, priority=5)
        eventually(lambda: server.work() == 1)
        urgent = pool.submit(server.post, COMPLETIONS, **body, priority=1).result().json()["timing"]
        last = pool.submit(server.post, COMPLETIONS, **body, priority=9)
        for waited in (low, last):
            check(waited.result().json()["timing"])
        preempted = low.result().json()["timing"]
    assert urgent["preempted_ms"] == [] and urgent["queued_ms"] < urgent["finished_ms"] / 2
    (when,) = preempted["preempted_ms"]
    assert preempted["queued_ms"] < when < preempted["finished_ms"] - 300


def test_waiting_for_a_step_to_end_is_waiting(server: RunningServer) -> None:
    """The engine reads nothing meanwhile; arrival was when it read the request."""
    with ThreadPoolExecutor(1) as pool:
        napping = pool.submit(server.post, COMPLETIONS, prompt="a", max_tokens=1, user="napping")
        eventually(lambda: server.client.streams)
        time.sleep(0.3)
        timing = server.post(COMPLETIONS, prompt="a", max_tokens=1, timing=True).json()["timing"]
        napping.result()
    assert timing["queued_ms"] > 50


@pytest.mark.parametrize("restarts", [0, 3])
def test_an_answer_that_is_complete_needs_no_engine(
    start: Start, monkeypatch: pytest.MonkeyPatch, restarts: int
) -> None:
    """The text has ended, and the engine is gone before it could say when: the server says it."""
    server = start(engine_restarts=restarts)
    send = server.client._send
    monkeypatch.setattr(server.client, "_send", lambda c: None if isinstance(c, Abort) else send(c))
    body = {"prompt": "ab", "stop": "a", "max_tokens": 400, "user": "slow", "timing": True}
    with ThreadPoolExecutor(1) as pool:
        answer = pool.submit(server.post, COMPLETIONS, **body)
        eventually(lambda: any(stream.done for stream in server.client.streams.unfinished))
        os.kill(server.client.pid, signal.SIGKILL)
    assert answer.result().status_code == 200
    assert answer.result().json()["choices"][0]["finish_reason"] == "stop"
    check(answer.result().json()["timing"])


def test_official_clients_read_it(server: RunningServer) -> None:
    client = openai.OpenAI(base_url=f"{server.url}/v1", api_key="x", _strict_response_validation=True)
    extra = {"timing": True}
    answer: Any = client.completions.create(model="echo", prompt="a", extra_body=extra)
    check(answer.timing)
    chat: Any = {"model": "echo", "messages": HI, "stop": "ihi", "extra_body": extra}
    whole: Any = client.chat.completions.create(**chat)
    check(whole.timing)
    *_, last = client.chat.completions.create(**chat, stream=True)
    check(last.timing)
    with client.chat.completions.stream(**chat) as stream:
        final: Any = stream.get_final_completion()
    assert final.choices[0].message.content == whole.choices[0].message.content == "h"
