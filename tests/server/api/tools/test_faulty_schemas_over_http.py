"""Faulty schemas of tools over HTTP, with a template whose calls stand between tags, as Qwen3-Coder's."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest
from tiny_server import TinyServer, serving

TEMPLATE = """{% if tools %}{{ tools | tojson }}
<tool_call><function=name><parameter=key>value</parameter></function></tool_call>{% endif %}
{%- for m in messages %}[{{ m.role }}]{{ m.content }}{% endfor %}[assistant]"""
MANY = [{"anyOf": [{"minLength": size} for size in range(10)]}] * 6
FAULTY: list[tuple[dict[str, Any], str]] = [
    ({"properties": {"a": {"type": 5}}}, "its keyword 'type' should be one of array, boolean,"),
    ({"properties": [1]}, "its keyword 'properties' should be an object of schemas by their names, not [1]"),
    ({"required": 7}, "its keyword 'required' should be a list of names, not 7"),
    (
        {"properties": {"a": {"type": "string", "minLength": "x"}}},
        "its keyword 'minLength' should be a whole number that is not negative, not 'x'",
    ),
    ({"properties": {"a": {"type": "string", "allOf": MANY}}}, "the schema is too intricate: its allOf, "),
]


@pytest.fixture(scope="module")
def server() -> Iterator[TinyServer]:
    with serving("--chat-template", TEMPLATE) as server:
        yield server


def asked(path: str, schema: dict[str, Any]) -> tuple[dict[str, Any], str]:
    """A request that offers a tool, and how errors name its schema."""
    body = {"model": "turnout-tiny", "max_tokens": 2, "messages": [{"role": "user", "content": "Hi"}]}
    if path == "/v1/messages":
        return {**body, "tools": [{"name": "look_up", "input_schema": schema}]}, "tools[0].input_schema"
    function = {"name": "look_up", "parameters": schema}
    return {**body, "tools": [{"type": "function", "function": function}]}, "tools[0].function.parameters"


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/messages"])
@pytest.mark.parametrize(("fault", "why"), FAULTY)
def test_a_faulty_schema_is_refused_by_name(
    server: TinyServer, path: str, fault: dict[str, Any], why: str
) -> None:
    """Malformed ones were a 500; one of many combinations took a minute, also when its client had left."""
    body, place = asked(path, {"type": "object", **fault})
    began = time.monotonic()
    response = server.post(path, body, timeout=60)
    assert time.monotonic() - began < 10
    assert response.status_code == 400, response.text
    assert response.json()["error"]["message"].startswith(f"{place} of 'look_up': {why}")


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/messages"])
def test_a_schema_without_faults_is_offered(server: TinyServer, path: str) -> None:
    body, _ = asked(path, {"type": "object", "properties": {"a": {"type": "string"}}, "required": None})
    assert server.post(path, body).status_code == 200
