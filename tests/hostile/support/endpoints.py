"""Every endpoint that takes a body: its type, a body that is valid, and what any answer must look like."""

from __future__ import annotations

import json
from typing import Any

import httpx
from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy
from pydantic import BaseModel
from values import Body, bodies, mutated

from turnout.server.admin.ab import ArmChange
from turnout.server.admin.prefixes import PrefixRequest
from turnout.server.admin.scheduler import PolicyChange
from turnout.server.protocol.chat import ChatRequest
from turnout.server.protocol.completions import CompletionRequest
from turnout.server.protocol.infill import InfillRequest
from turnout.server.protocol.messages.request import CountRequest, MessagesRequest
from turnout.server.protocol.ollama.embed import OllamaEmbed
from turnout.server.protocol.ollama.requests import OllamaChat, OllamaGenerate, ShowRequest
from turnout.server.protocol.pooling.requests import (
    ClassifyRequest,
    EmbeddingRequest,
    PoolingRequest,
    RerankRequest,
    ScoreRequest,
)
from turnout.server.protocol.responses_request import ResponsesRequest
from turnout.server.protocol.tokenization import DetokenizeRequest, TokenizeRequest

__all__ = ["ENDPOINTS", "TOOLS", "Endpoint", "assert_answered", "examples"]

Endpoint = tuple[str, type[BaseModel], Body]
SCHEMA = {
    "type": "object",
    "properties": {"city": {"type": "string", "maxLength": 8}, "days": {"enum": [1, 2, 3]}},
    "required": ["city", "days"],
    "additionalProperties": False,
}
TOOLS = [
    {"type": "function", "function": {"name": "forecast", "description": "Weather.", "parameters": SCHEMA}},
    {"type": "function", "function": {"name": "now"}},
]
MODEL, SHORT = "turnout-tiny", {"num_predict": 3, "temperature": 0.5, "stop": ["b"]}
SAID = [{"role": "user", "content": "a"}]
MESSAGE = {"messages": SAID, "max_tokens": 3}
ENDPOINTS: dict[str, Endpoint] = {
    "completions": ("/v1/completions", CompletionRequest, {"prompt": "def", "max_tokens": 3}),
    "chat": ("/v1/chat/completions", ChatRequest, MESSAGE),
    "chat-tools": (
        "/v1/chat/completions",
        ChatRequest,
        {**MESSAGE, "tools": TOOLS, "tool_choice": "required", "max_tokens": 40},
    ),
    "messages": ("/v1/messages", MessagesRequest, MESSAGE),
    "messages-tools": (
        "/v1/messages",
        MessagesRequest,
        {
            **MESSAGE,
            "tools": [{"name": "forecast", "input_schema": SCHEMA}],
            "tool_choice": {"type": "any"},
            "max_tokens": 40,
        },
    ),
    "count": ("/v1/messages/count_tokens", CountRequest, {"messages": SAID}),
    "responses": ("/v1/responses", ResponsesRequest, {"input": "a", "max_output_tokens": 3}),
    "responses-tools": (
        "/v1/responses",
        ResponsesRequest,
        {
            "input": SAID,
            "tools": [{"type": "function", "name": "forecast", "parameters": SCHEMA}],
            "tool_choice": "required",
            "max_output_tokens": 40,
        },
    ),
    "ollama-chat": ("/api/chat", OllamaChat, {"model": MODEL, "messages": SAID, "options": SHORT}),
    "ollama-generate": ("/api/generate", OllamaGenerate, {"model": MODEL, "prompt": "a", "options": SHORT}),
    "ollama-show": ("/api/show", ShowRequest, {"model": MODEL}),
    "infill": ("/infill", InfillRequest, {"input_prefix": "a", "input_suffix": "b", "n_predict": 3}),
    "tokenize": ("/tokenize", TokenizeRequest, {"prompt": "def"}),
    "tokenize-chat": ("/tokenize", TokenizeRequest, {"messages": SAID, "tools": TOOLS}),
    "detokenize": ("/detokenize", DetokenizeRequest, {"tokens": [1, 2, 3]}),
    "embeddings": ("/v1/embeddings", EmbeddingRequest, {"input": ["def", "a b"], "dimensions": 8}),
    "pooling": ("/pooling", PoolingRequest, {"input": [[5, 6], [7]], "task": "token_embed"}),
    "rerank": ("/v1/rerank", RerankRequest, {"query": "a", "documents": ["b", {"text": "c"}], "top_n": 1}),
    "score": ("/v1/score", ScoreRequest, {"text_1": "a", "text_2": ["b", "c"]}),
    "classify": ("/classify", ClassifyRequest, {"input": "a"}),
    "ollama-embed": ("/api/embed", OllamaEmbed, {"model": MODEL, "input": ["a", "b"]}),
    "prefixes": ("/admin/prefixes", PrefixRequest, {"name": "fuzz", "prompt": "def f():\n    pass\n" * 12}),
    "scheduler": ("/admin/scheduler", PolicyChange, {"name": "mlfq"}),
    "ab": ("/admin/ab", ArmChange, {"action": "stop", "arm": "base"}),
}
CALL = {"id": "call_1", "type": "function", "function": {"name": "now", "arguments": "{}"}}
CONVERSATIONS: dict[str, Body] = {
    "chat-tools": {
        "messages": [
            {"role": "system", "content": "Be brief."},
            {"role": "user", "content": [{"type": "text", "text": "When?"}]},
            {"role": "assistant", "content": None, "tool_calls": [CALL], "reasoning_content": "Hm."},
            {"role": "tool", "tool_call_id": "call_1", "content": "noon"},
        ],
        "tools": TOOLS,
        "stream": True,
        "stream_options": {"include_usage": True},
        "response_format": {"type": "json_schema", "json_schema": {"name": "a", "schema": SCHEMA}},
        "max_tokens": 20,
    },
    "messages-tools": {
        "system": [{"type": "text", "text": "Be brief."}],
        "messages": [
            {"role": "user", "content": [{"type": "text", "text": "When?"}]},
            {
                "role": "assistant",
                "content": [
                    {"type": "thinking", "thinking": "Hm.", "signature": ""},
                    {"type": "text", "text": "I look."},
                    {"type": "tool_use", "id": "toolu_1", "name": "now", "input": {"zone": 1}},
                ],
            },
            {
                "role": "user",
                "content": [
                    {
                        "type": "tool_result",
                        "tool_use_id": "toolu_1",
                        "content": [{"type": "text", "text": "noon"}],
                    },
                    {"type": "text", "text": "So?"},
                ],
            },
        ],
        "tools": [{"name": "now", "input_schema": {"type": "object"}}],
        "tool_choice": {"type": "auto", "disable_parallel_tool_use": True},
        "thinking": {"type": "enabled", "budget_tokens": 1024},
        "metadata": {"user_id": "u"},
        "stop_sequences": ["\n\n"],
        "stream": True,
        "max_tokens": 20,
    },
    "ollama-chat": {
        "model": MODEL,
        "messages": [
            {"role": "user", "content": "When?"},
            {
                "role": "assistant",
                "content": "",
                "thinking": "Hm.",
                "tool_calls": [{"function": {"name": "now", "arguments": {"zone": 1}}}],
            },
            {"role": "tool", "tool_name": "now", "content": "noon"},
        ],
        "tools": TOOLS,
        "format": SCHEMA,
        "options": {**SHORT, "num_ctx": 128, "repeat_last_n": 64, "seed": -1},
        "keep_alive": "5m",
        "logprobs": True,
        "top_logprobs": 2,
        "think": False,
    },
    "ollama-generate": {
        "model": MODEL,
        "prompt": "When?",
        "system": "Be brief.",
        "template": "{{ if .System }}{{ .System }}{{ else }}{{ end }} {{- .Prompt }}{{ .Response }}",
        "context": [1, 2, 3],
        "stream": False,
        "options": SHORT,
    },
    "infill": {
        "input_prefix": "a",
        "input_extra": [{"filename": "f", "text": "t"}],
        "response_fields": ["a/b"],
    },
    "responses-tools": {
        "instructions": "Be brief.",
        "input": [
            {"role": "developer", "content": "Hm."},
            {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "When?"}]},
            {"type": "reasoning", "summary": [], "content": [{"type": "reasoning_text", "text": "Hm."}]},
            {"type": "function_call", "call_id": "call_1", "name": "now", "arguments": "{}"},
            {"type": "function_call_output", "call_id": "call_1", "output": "noon"},
        ],
        "tools": [{"type": "function", "name": "now", "parameters": {"type": "object"}}],
        "text": {"format": {"type": "json_schema", "name": "a", "schema": SCHEMA}},
        "reasoning": {"effort": "low"},
        "metadata": {"a": "b"},
        "stream": True,
        "max_output_tokens": 20,
    },
}
"""Bodies that say as much as clients do who have used tools."""
SCHEDULERS = ["fcfs", "sjf", "ljf", "mlfq", "fair", "priority", "hrrn", "lpm", "srpt", "sarathi", "static"]
LAST = {
    "/v1/completions": "data: [DONE]",
    "/v1/chat/completions": "data: [DONE]",
    "/v1/messages": "event: message_stop\n",
    "/v1/responses": "event: response.",
    "/infill": "data: {",
}
"""How the last event of a stream begins that brings no error."""


def examples(endpoint: str) -> SearchStrategy[Any]:
    """Bodies for an endpoint: most of them almost valid."""
    _, model, valid = ENDPOINTS[endpoint]
    near = [valid, CONVERSATIONS.get(endpoint, valid)]
    if endpoint == "scheduler":
        near = [{"name": name, "options": {}} for name in SCHEDULERS]
    return st.one_of(bodies(model, valid), *map(mutated, near))


def assert_answered(path: str, answer: httpx.Response) -> None:
    """With what was asked for, or with an error that the API's clients can read, and that blames them."""
    if answer.status_code == 200:
        if answer.headers["Content-Type"].startswith("text/event-stream"):
            _assert_stream(path, answer.text)
        elif answer.headers["Content-Type"] == "application/x-ndjson":
            _assert_lines(path, answer.text)
        else:
            answer.json()
        return
    assert 400 <= answer.status_code < 500 or answer.status_code == 503, answer.text
    if answer.status_code == 503:
        assert "Retry-After" in answer.headers, answer.text
    _assert_error(path, answer.json(), busy=answer.status_code == 503)
    assert len(answer.text) < 5000


def _assert_stream(path: str, text: str) -> None:
    *events, last, end = text.split("\n\n")
    assert not end, text[-500:]
    failed = False
    for event in [*events, last]:
        data = event[event.index("data: ") + 6 :]
        content = {} if data == "[DONE]" else json.loads(data)
        if "error" in content and content["error"] is not None:
            _assert_error(path, content)
            failed = True
        elif content.get("type") == "error":  # of /v1/responses
            assert content["message"] and isinstance(content["code"], str | None), content
            failed = True
    assert last.startswith(LAST[path]) or (failed and LAST[path] != "data: [DONE]"), text[-500:]


def _assert_lines(path: str, text: str) -> None:
    """A stream of Ollama's ends in an object that says so, or in an error."""
    *parts, last = [json.loads(line) for line in text.splitlines()]
    assert not any(part.get("done") or "error" in part for part in parts), text[-500:]
    if "error" in last:
        _assert_error(path, last)
    else:
        assert last["done"] and last["done_reason"], last


def _assert_error(path: str, body: dict[str, Any], *, busy: bool = False) -> None:
    error = body["error"]
    if path.startswith("/api/"):
        assert body.keys() == {"error"} and error and isinstance(error, str), body
        return
    if path.startswith("/v1/messages"):
        assert body["type"] == "error" and error.keys() - {"details"} == {"type", "message"}, body
        assert error["message"] and error["type"] != "api_error", error
        return
    assert error.keys() == {"message", "type", "param", "code"}, error
    assert error["message"] and (busy or error["type"] != "server_error"), error
    assert error["param"] is None or isinstance(error["param"], str)
