"""What of an answer is reasoning is counted, the same in every API."""

from __future__ import annotations

import json
from typing import Any

import pytest
from assistant import NAME, AssistantServer
from script import Script, thought

ASK = [{"role": "user", "content": "How warm is it in Bern?"}]
THOUGHT = "I should look at a thermometer first."


def ask(server: AssistantServer, path: str, **body: Any) -> Any:
    answered = server.post(path, {"model": NAME, **body})
    assert answered.status_code == 200, answered.text
    return answered.json()


@pytest.fixture
def tokens(server: AssistantServer, script: Script) -> int:
    """How many tokens the reasoning has that the assistant is about to write."""
    script.say(thought(THOUGHT) + "It is 18 degrees.")
    return int(ask(server, "/tokenize", prompt=f"\n{THOUGHT}\n", add_special_tokens=False)["count"])


def test_chat(server: AssistantServer, tokens: int) -> None:
    usage = ask(server, "/v1/chat/completions", messages=ASK)["usage"]
    assert usage["completion_tokens_details"] == {"reasoning_tokens": tokens}
    assert usage["completion_tokens"] > tokens
    body = {"model": NAME, "messages": ASK, "stream": True, "stream_options": {"include_usage": True}}
    *_, last, _ = server.post("/v1/chat/completions", body).text.strip().split("\n\n")
    assert json.loads(last.removeprefix("data: "))["usage"]["completion_tokens_details"] == {
        "reasoning_tokens": tokens
    }


def test_responses(server: AssistantServer, tokens: int) -> None:
    usage = ask(server, "/v1/responses", input="How warm?")["usage"]
    assert usage["output_tokens_details"] == {"reasoning_tokens": tokens}


def test_messages(server: AssistantServer, tokens: int) -> None:
    usage = ask(server, "/v1/messages", messages=ASK, max_tokens=200)["usage"]
    assert usage["output_tokens_details"] == {"thinking_tokens": tokens}


def test_an_answer_without_reasoning_has_none(server: AssistantServer, script: Script) -> None:
    script.say("It is 18 degrees.")
    usage = ask(server, "/v1/chat/completions", messages=ASK)["usage"]
    assert usage["completion_tokens_details"] == {"reasoning_tokens": 0}
