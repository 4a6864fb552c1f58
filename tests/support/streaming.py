"""Asking a running server for a stream, and what its events hold."""

from __future__ import annotations

import json
from typing import Any

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
