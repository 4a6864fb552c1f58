"""Bodies of every endpoint: each is served or refused in OpenAI's form, and none harms another request."""

from __future__ import annotations

import json
from typing import Any

import httpx
import pytest
from fuzzing import Fuzz
from hypothesis import strategies as st
from pydantic import BaseModel
from tiny_server import TinyServer
from values import Body, bodies, encoded

from turnout.server.admin.ab import ArmChange
from turnout.server.admin.prefixes import PrefixRequest
from turnout.server.admin.scheduler import PolicyChange
from turnout.server.protocol.chat import ChatRequest
from turnout.server.protocol.completions import CompletionRequest
from turnout.server.protocol.tokenization import DetokenizeRequest, TokenizeRequest

ENDPOINTS: dict[str, tuple[type[BaseModel], Body]] = {
    "/v1/completions": (CompletionRequest, {"prompt": "def", "max_tokens": 3}),
    "/v1/chat/completions": (
        ChatRequest,
        {"messages": [{"role": "user", "content": "a"}], "max_tokens": 3},
    ),
    "/tokenize": (TokenizeRequest, {"prompt": "def"}),
    "/detokenize": (DetokenizeRequest, {"tokens": [1, 2, 3]}),
    "/admin/prefixes": (PrefixRequest, {"name": "fuzz", "prompt": "def f():\n    return 1\n" * 9}),
    "/admin/scheduler": (PolicyChange, {"name": "mlfq"}),
    "/admin/ab": (ArmChange, {"action": "stop", "arm": "base"}),
}
CANARY = 20
"""Requests after which another client's request is tried."""
FEW = {"/v1/completions": 40, "/v1/chat/completions": 25}


@pytest.mark.parametrize("path", ENDPOINTS)
def test_every_body_is_served_or_refused(fuzz: Fuzz, fuzzed: TinyServer, path: str) -> None:
    model, valid = ENDPOINTS[path]
    sent = 0
    with httpx.Client(base_url=fuzzed.url, timeout=60) as client:

        def check(body: Any) -> None:
            nonlocal sent
            assert_answered(client, path, encoded(body))
            sent += 1
            if not sent % CANARY:
                fuzzed.check()

        fuzz(bodies(model, valid), check, FEW.get(path, 8))
    fuzzed.check()


def test_every_text_is_served_or_refused(fuzz: Fuzz, fuzzed: TinyServer) -> None:
    """A body that was valid JSON, until bytes of it were changed."""
    valid = encoded(
        {"prompt": ["def", "é🙂"], "max_tokens": 2, "logit_bias": {"5": 1.5}, "stop": ["\n"], "stream": True}
    )
    places = st.integers(0, len(valid) - 1)
    changes = st.lists(st.tuples(places, st.binary(max_size=4), st.integers(0, 3)), max_size=5)
    with httpx.Client(base_url=fuzzed.url, timeout=60) as client:

        def check(changed: list[tuple[int, bytes, int]]) -> None:
            body = valid
            for start, inserted, dropped in changed:
                body = body[:start] + inserted + body[start + dropped :]
            assert_answered(client, "/v1/completions", body)

        fuzz(changes, check, 30)
    fuzzed.check()


def assert_answered(client: httpx.Client, path: str, body: bytes) -> None:
    """With what was asked for, or with an error that a client of OpenAI's can read."""
    answer = client.post(path, content=body, headers={"Content-Type": "application/json"})
    if answer.status_code == 200:
        if answer.headers["Content-Type"].startswith("text/event-stream"):
            assert_stream(answer.text)
        else:
            answer.json()
        return
    assert 400 <= answer.status_code < 500 or answer.status_code == 503, answer.text
    if answer.status_code == 503:
        assert "Retry-After" in answer.headers, answer.text
    assert_error(answer.json()["error"])
    assert len(answer.text) < 5000


def assert_stream(text: str) -> None:
    *events, last, end = text.split("\n\n")
    assert (last, end) == ("data: [DONE]", "")
    for event in events:
        data = json.loads(event.removeprefix("data: "))
        if "error" in data:
            assert_error(data["error"])


def assert_error(error: dict[str, Any]) -> None:
    assert error.keys() == {"message", "type", "param", "code"}, error
    assert error["message"] and error["type"] != "server_error", error
    assert error["param"] is None or isinstance(error["param"], str)
