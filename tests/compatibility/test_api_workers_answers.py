"""Servers of one process and of several give the same answers."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import httpx
import pytest
from tiny_server import TinyServer, serving

ANY: dict[str, Any] = {"prompt": "def add(a, b):\n    return", "max_tokens": 12, "seed": 7}
CHAT: dict[str, Any] = {
    "messages": [{"role": "user", "content": "Write a loop."}],
    "max_tokens": 12,
    "seed": 7,
}
SCHEMA = {"type": "object", "properties": {"a": {"type": "integer", "maximum": 9}}, "required": ["a"]}
ASKED: list[tuple[str, dict[str, Any]]] = [
    ("/v1/completions", {**ANY, "n": 3, "best_of": 4, "logprobs": 2}),
    ("/v1/completions", {**ANY, "prompt": ["a = 1", "b = [", "for"], "echo": True, "stop": ["\n\n"]}),
    ("/v1/completions", {**ANY, "prompt_logprobs": 3, "temperature": 0}),
    ("/v1/completions", {**ANY, "use_beam_search": True, "n": 2, "beam_width": 3, "temperature": 0}),
    ("/v1/completions", {**ANY, "structured_outputs": {"json": SCHEMA}, "max_tokens": 30}),
    ("/v1/completions", {**ANY, "return_token_ids": True, "logit_bias": {"40": 50}, "min_tokens": 5}),
    ("/v1/chat/completions", {**CHAT, "n": 2, "logprobs": True, "top_logprobs": 2}),
    ("/v1/messages", {**CHAT, "model": "turnout-tiny", "temperature": 0}),
    ("/v1/responses", {"input": "Write a loop.", "max_output_tokens": 12, "temperature": 0}),
    (
        "/api/chat",
        {
            "model": "turnout-tiny",
            "messages": CHAT["messages"],
            "options": {"seed": 7, "num_predict": 12},
            "stream": False,
        },
    ),
    ("/tokenize", {"prompt": "def add(a, b):"}),
]
OTHER = frozenset({"id", "created", "created_at", "cached_tokens"})
"""Fields that differ from answer to answer."""


def answers(server: TinyServer) -> list[object]:
    with httpx.Client(base_url=server.url, timeout=60) as client:
        found: list[object] = []
        for path, body in ASKED:
            whole = client.post(path, json=body)
            found.append((path, whole.status_code, compared(whole.json())))
            if path.startswith("/v1/c") and "best_of" not in body:
                lines = client.post(path, json={**body, "stream": True}).text.splitlines()
                found.append(streamed(json.loads(line[6:]) for line in lines if line.startswith("data: {")))
        return found


def compared(value: object) -> object:
    """What is the same in each answer."""
    if isinstance(value, dict):
        return {
            name: compared(each)
            for name, each in value.items()
            if name not in OTHER and not name.endswith("_duration")
        }
    return [compared(each) for each in value] if isinstance(value, list) else value


def streamed(events: Iterable[dict[str, Any]]) -> dict[int, str]:
    """The text of each choice: how many tokens an event has depends on the steps."""
    texts: dict[int, str] = {}
    for choice in (choice for event in events for choice in event["choices"]):
        text = choice["text"] if "text" in choice else choice["delta"].get("content") or ""
        texts[choice["index"]] = texts.get(choice["index"], "") + text
    return dict(sorted(texts.items()))


@pytest.mark.slow
@pytest.mark.parametrize("flags", [(), ("--spec-ngram",), ("--replicas", "2", "--router", "score")])
def test_answers_of_several_processes_are_those_of_one(flags: tuple[str, ...]) -> None:
    with serving(*flags) as server:
        one = answers(server)
    with serving("--api-workers", "2", *flags) as server:
        several = answers(server)
    assert [each for each in one if isinstance(each, tuple) and each[1] != 200] == []
    assert several == one


@pytest.mark.slow
def test_responses_are_stored_whichever_process_is_asked(tmp_path: Path) -> None:
    """`/v1/responses` said `"store": false`, and knew of no store."""
    asked = {"input": "Write a loop.", "max_output_tokens": 5}
    store = tmp_path / "responses.db"
    with serving("--api-workers", "2", "--response-store", str(store)) as server:
        first = httpx.post(f"{server.url}/v1/responses", json=asked, timeout=60).json()
        assert first["store"] is True
        for _ in range(6):  # each on a connection of its own, which either process may take
            found = httpx.get(f"{server.url}/v1/responses/{first['id']}", timeout=60)
            assert found.status_code == 200 and found.json()["output"] == first["output"]
            going_on = {**asked, "previous_response_id": first["id"]}
            assert httpx.post(f"{server.url}/v1/responses", json=going_on, timeout=60).json()["store"] is True
