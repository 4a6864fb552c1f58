"""Attacks on the APIs of conversations, and on tools: each is answered soon, and others are served."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
from tiny_server import TinyServer

CHAT, MESSAGES, COUNT, RESPONSES = (
    "/v1/chat/completions",
    "/v1/messages",
    "/v1/messages/count_tokens",
    "/v1/responses",
)
SECONDS = 20
"""What an attack may take on a loaded machine: each takes less than one on another."""
USER = {"role": "user", "content": "a"}
TEXT = {"type": "text", "text": "a"}


@dataclass(frozen=True)
class Attack:
    """A request, and the status that it gets."""

    name: str
    path: str
    status: int
    fields: Callable[[], dict[str, Any]]

    def body(self) -> dict[str, Any]:
        length = "max_output_tokens" if self.path == RESPONSES else "max_tokens"
        asked = {"input": "a"} if self.path == RESPONSES else {"messages": [USER]}
        return {
            "model": "turnout-tiny",
            **asked,
            **({} if self.path == COUNT else {length: 2}),
            **self.fields(),
        }


def tool(name: str, **more: Any) -> dict[str, Any]:
    return {"type": "function", "function": {"name": name, "parameters": {"type": "object"}, **more}}


def nested(levels: int) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "string"}
    for _ in range(levels):
        schema = {"type": "object", "properties": {"a": schema}}
    return schema


def called(arguments: str) -> list[dict[str, Any]]:
    call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": arguments}}
    return [
        USER,
        {"role": "assistant", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c", "content": "1"},
    ]


def picture(size: int) -> dict[str, Any]:
    source = {"type": "base64", "media_type": "image/png", "data": "A" * size}
    return {"role": "user", "content": [{"type": "image", "source": source}]}


ATTACKS = [
    Attack("thousands of tools", CHAT, 400, lambda: {"tools": [tool(f"f{k}") for k in range(5000)]}),
    Attack("512 tools", CHAT, 400, lambda: {"tools": [tool(f"f{k}") for k in range(512)]}),
    Attack("a description of megabytes", CHAT, 400, lambda: {"tools": [tool("f", description="d " * 2**20)]}),
    Attack("a name of a megabyte", CHAT, 400, lambda: {"tools": [tool("f" * 2**20)]}),
    Attack("a deep schema", CHAT, 400, lambda: {"tools": [tool("f", parameters=nested(40))]}),
    Attack(
        "a schema of 20,000 properties",
        CHAT,
        400,
        lambda: {"tools": [tool("f", parameters={"properties": {f"p{k}": {} for k in range(20_000)}})]},
    ),
    Attack(
        "arguments of megabytes", CHAT, 400, lambda: {"messages": called(json.dumps({"a": "b " * 2**20}))}
    ),
    Attack("arguments that are deep", CHAT, 400, lambda: {"messages": called("[" * 100_000 + "]" * 100_000)}),
    Attack("30,000 blocks", MESSAGES, 400, lambda: {"messages": [{**USER, "content": [TEXT] * 30_000}]}),
    Attack("a system of megabytes", MESSAGES, 400, lambda: {"system": "word " * 2**20}),
    Attack("a system of 30,000 blocks", MESSAGES, 400, lambda: {"system": [TEXT] * 30_000}),
    Attack("a picture of megabytes", MESSAGES, 400, lambda: {"messages": [picture(4 * 2**20)]}),
    Attack("to count megabytes", COUNT, 400, lambda: {"system": "a b " * 2**20}),
    Attack(
        "to count 30,000 blocks", COUNT, 200, lambda: {"messages": [{**USER, "content": [TEXT] * 30_000}]}
    ),
    Attack("an input of megabytes", RESPONSES, 400, lambda: {"input": "a b " * 2**20}),
    Attack("an input of 20,000 items", RESPONSES, 400, lambda: {"input": [USER] * 20_000}),
    Attack("instructions of megabytes", RESPONSES, 400, lambda: {"instructions": "a b " * 2**20}),
    Attack("metadata of megabytes", RESPONSES, 400, lambda: {"metadata": {"a": "b" * 2**22}}),
]


@pytest.mark.parametrize("attack", ATTACKS, ids=lambda attack: attack.name)
def test_it_is_answered_soon_and_others_are_served(tiny: TinyServer, attack: Attack) -> None:
    answers: list[str] = []
    other = threading.Thread(target=lambda: answers.append(tiny.answer()))
    content = json.dumps(attack.body()).encode()
    other.start()
    begun = time.monotonic()
    response = tiny.post(attack.path, content)
    taken = time.monotonic() - begun
    other.join()
    assert response.status_code == attack.status, response.text[:500]
    assert taken < SECONDS
    assert answers == [tiny.tokens]
    if attack.status != 200:
        assert response.json()["error"]["message"] and len(response.content) < 2000
