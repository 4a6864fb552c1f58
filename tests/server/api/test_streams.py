"""Streams over real sockets: what they hold, and what becomes of their work."""

from __future__ import annotations

import json
import socket
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from asking import CHAT, COMPLETIONS, events, text
from running_server import RunningServer, Start, eventually


def test_the_order_of_a_chat(server: RunningServer) -> None:
    body = {"messages": [{"role": "user", "content": "ab"}], "max_tokens": 3}
    found = events(server, CHAT, **body, stream_options={"include_usage": True})
    deltas = [event["choices"][0]["delta"] for event in found[:-1]]
    assert deltas == [
        {"role": "assistant", "content": ""},
        {"content": "a"},
        {"content": "b"},
        {"content": "a"},
        {},
    ]
    assert [event["usage"] for event in found[:-1]] == [None] * 5
    assert found[-1]["choices"] == []
    assert found[-1]["usage"]["completion_tokens"] == 3
    assert "usage" not in events(server, CHAT, **body)[0]


def test_characters_come_whole_and_unescaped(server: RunningServer) -> None:
    found = events(server, COMPLETIONS, prompt="你好，🦀👩‍👩‍👧", max_tokens=100)
    assert text(found).startswith("你好，🦀👩‍👩‍👧你好")
    assert not any("\ufffd" in text([event]) for event in found[:-1])
    raw = server.post(COMPLETIONS, prompt="你好", max_tokens=6).content
    assert "你好".encode() in raw


def test_the_first_event_tells_that_a_token_has_come(server: RunningServer) -> None:
    first, second, *_ = events(server, COMPLETIONS, prompt="ab", max_tokens=4, stop=["ab!"])
    assert (text([first]), first["choices"][0]["finish_reason"]) == ("", None)
    assert text([second]) == "ab"
    body = {"messages": [{"role": "user", "content": "ab"}], "max_tokens": 4, "stop": ["ab!"]}
    begun, then, *_ = (event["choices"][0]["delta"] for event in events(server, CHAT, **body))
    assert (begun, then) == ({"role": "assistant", "content": ""}, {"content": "ab"})


def test_streamed_is_whole(server: RunningServer) -> None:
    for options in ({}, {"stop": ["world, he"]}, {"stop": ["o w", "lo"], "include_stop_str_in_output": True}):
        body = {"prompt": "hello world, 你好 ", "max_tokens": 60, "logprobs": 1, **options}
        whole = server.post(COMPLETIONS, **body).json()["choices"][0]
        found = events(server, COMPLETIONS, **body)
        assert text(found) == whole["text"]
        assert found[-1]["choices"][0]["finish_reason"] == whole["finish_reason"]
        for name in ("tokens", "text_offset", "token_logprobs"):
            parts = [item for event in found for item in event["choices"][0]["logprobs"][name]]
            assert parts == whole["logprobs"][name]


def test_a_stop_string_frees_the_work(server: RunningServer) -> None:
    found = events(server, COMPLETIONS, prompt="1a2a3", max_tokens=500, stop="a3", user="slow")
    assert text(found) == "1a2"
    eventually(lambda: server.work() == 0, 1)


def test_only_the_choice_that_stopped_is_ended(server: RunningServer) -> None:
    answer = server.post(COMPLETIONS, prompt="abc", n=3, max_tokens=7, stop="bcab").json()
    assert [choice["text"] for choice in answer["choices"]] == ["a", "", "ca"]
    answer = server.post(COMPLETIONS, prompt="abc", n=3, max_tokens=5, stop="bcab").json()
    assert [choice["text"] for choice in answer["choices"]] == ["a", "", "cabca"]
    assert answer["usage"]["completion_tokens"] == 5 + 4 + 5


def test_32_at_once(server: RunningServer) -> None:
    prompts = [f"stream {number}: 你好 " for number in range(32)]
    expected = [text(events(server, COMPLETIONS, prompt=prompt, max_tokens=64)) for prompt in prompts]
    with ThreadPoolExecutor(32) as pool:
        found = pool.map(lambda prompt: events(server, COMPLETIONS, prompt=prompt, max_tokens=64), prompts)
        assert [text(stream) for stream in found] == expected


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("prompt", ["a", ["a", "b", "c"]])
def test_a_client_that_leaves_frees_its_work(server: RunningServer, stream: bool, prompt: Any) -> None:
    body = json.dumps(
        {"prompt": prompt, "stream": stream, "max_tokens": 500, "n": 2, "user": "slow"}
    ).encode()
    host, port = server.url.removeprefix("http://").split(":")
    head = f"POST {COMPLETIONS} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}\r\n\r\n"
    with socket.create_connection((host, int(port))) as connection:
        connection.sendall(head.encode() + body)
        eventually(lambda: server.work() > 0)
        if stream:
            connection.recv(1000)
    eventually(lambda: server.work() == 0, 5)  # ten seconds of steps were to come


def test_the_server_answers_while_a_step_takes_long(server: RunningServer) -> None:
    with ThreadPoolExecutor(1) as pool:
        stuck = pool.submit(server.post, COMPLETIONS, prompt="a", max_tokens=1, user="stuck")
        time.sleep(0.3)
        started = time.monotonic()
        assert server.http.get("/health").status_code == 200
        assert time.monotonic() - started < 1
        assert stuck.result().status_code == 200


def test_an_engine_that_is_killed(start: Start) -> None:
    """Both kinds of answers end with an error, and so do later requests; nothing hangs."""
    server = start(engine_restarts=0)
    with ThreadPoolExecutor(2) as pool:
        whole = pool.submit(server.post, COMPLETIONS, prompt="a", max_tokens=500, user="slow")
        stream = pool.submit(events, server, COMPLETIONS, prompt="a", max_tokens=500, user="slow")
        eventually(lambda: server.work() == 2)
        time.sleep(0.2)
        server.post(COMPLETIONS, prompt="a", user="killed")
        assert whole.result(5).status_code == 503
        last = stream.result(5)[-1]
    assert "SIGBUS" in last["error"]["message"] and last["error"]["code"] == "engine_gone"
    assert server.post(COMPLETIONS, prompt="a").status_code == 503
    health = server.http.get("/health")
    assert server.http.get("/live").json() == health.json()
    assert health.status_code == 503 and "SIGBUS" in health.json()["reason"]


def test_an_engine_that_fails(start: Start) -> None:
    server = start(engine_restarts=0)
    response = server.post(COMPLETIONS, prompt="a", user="failing")
    assert response.status_code == 503
    assert response.json()["error"]["message"] == "RuntimeError: the echo engine failed"


def test_tokenize(server: RunningServer) -> None:
    answer = server.post("/tokenize", prompt="hello 你好").json()
    assert answer["count"] == len(answer["tokens"]) and answer["max_model_len"] == 512
    assert server.post("/detokenize", tokens=answer["tokens"]).json() == {"prompt": "hello 你好"}


def test_information(server: RunningServer) -> None:
    assert server.http.get("/version").json()["version"]
    assert server.http.get("/").json()["model"] == "echo"
    assert server.http.get("/v1/models").json()["data"][0]["max_model_len"] == 512
