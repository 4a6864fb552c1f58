"""Asking a running server: by OpenAI's client in its strictest mode, and for the events of a stream."""

from __future__ import annotations

import json
from typing import Any

import openai
from running_server import RunningServer

COMPLETIONS = "/v1/completions"
CHAT = "/v1/chat/completions"


def events(server: RunningServer, path: str, **body: object) -> list[Any]:
    """The data of all events; the last must be [DONE]."""
    with server.http.stream("POST", path, json={**body, "stream": True}) as response:
        assert response.status_code == 200
        assert response.headers["content-type"].startswith("text/event-stream")
        lines = [line for line in response.iter_lines() if line]
    assert lines.pop() == "data: [DONE]"
    return [json.loads(line.removeprefix("data: ")) for line in lines]


def text(events: list[Any]) -> str:
    return "".join(choice["text"] for event in events for choice in event["choices"])


def strict_client(url: str, key: str = "none") -> openai.OpenAI:
    """A client that raises where an answer breaks its types, and tries nothing again."""
    return openai.OpenAI(base_url=f"{url}/v1", api_key=key, max_retries=0, _strict_response_validation=True)
