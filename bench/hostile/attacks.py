"""The costliest requests that a client can send, accepted or refused."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

__all__ = ["ATTACKS"]

COMPLETIONS, CHAT = "/v1/completions", "/v1/chat/completions"
TEXT = "word, " * 170_000
"""1 MB."""


def _get(path: str) -> bytes:
    return f"GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n".encode()


def _post(path: str, **body: Any) -> bytes:
    content = json.dumps(body).encode()
    head = (
        f"POST {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Type: application/json\r\n"
    )
    return f"{head}Content-Length: {len(content)}\r\n\r\n".encode() + content


def _completion(**fields: Any) -> bytes:
    return _post(COMPLETIONS, **{"prompt": "def f(x):", "max_tokens": 4, "ignore_eos": True, **fields})


def _messages(number: int) -> list[dict[str, str]]:
    return [{"role": "user", "content": "a"}] * number


def _schema(number: int, **properties: Any) -> bytes:
    """A form that is in no cache."""
    form = {"type": "object", "properties": {f"of{number}": {"type": "integer"}, **properties}}
    return _completion(guided_json=form)


def _tools(number: int, size: int) -> list[dict[str, Any]]:
    """`number` tools, together of about `size` characters."""
    text = "what it does. " * (size // number // 14)
    parameters = {"type": "object", "properties": {"path": {"type": "string"}, "line": {"type": "integer"}}}
    return [
        {"type": "function", "name": f"tool_{tool}", "description": text, "parameters": parameters}
        for tool in range(number)
    ]


ATTACKS: dict[str, Callable[[int], bytes]] = {
    "nothing": lambda _: _get("/version"),
    "1 MB to tokenize": lambda _: _post("/tokenize", prompt=TEXT, return_token_strs=True),
    "260,000 tokens to text": lambda _: _post("/detokenize", tokens=[5] * 260_000),
    "a text of 4 MB": lambda _: _completion(prompt=TEXT * 4),
    "1M token ids": lambda _: _completion(prompt=[12345] * 1_000_000),
    "2,048 prompts": lambda number: _completion(prompt=[f"{number}"] * 2048),
    "16,000 messages": lambda _: _post(CHAT, messages=_messages(16_000), max_tokens=1),
    "16,000 messages, counted": lambda _: _post(
        "/v1/messages/count_tokens", model="turnout-tiny", messages=_messages(16_000)
    ),
    "16,000 messages to Ollama's API": lambda _: _post("/api/chat", messages=_messages(16_000)),
    "200,000 biases": lambda _: _completion(logit_bias={str(token): 1 for token in range(200_000)}),
    "4,000 biases": lambda _: _completion(logit_bias={str(token): 1 for token in range(4_000)}),
    "4,000 bad words": lambda _: _completion(bad_words=[f"w{word}" for word in range(4_000)], max_tokens=50),
    "1 MB of stop strings, n = 32": lambda _: _completion(n=32, stop=["a" * 32_768] * 32),
    "128 KB of stop strings, n = 32": lambda _: _completion(n=32, stop=["a" * 4_096] * 32, max_tokens=50),
    "400 tokens and 20 log-probabilities": lambda _: _completion(max_tokens=400, logprobs=20),
    "128 choices and 20 log-probabilities": lambda _: _completion(n=128, max_tokens=30, logprobs=20),
    "20 log-probabilities of 2,000 tokens": lambda number: _completion(
        prompt=[number + 5] * 2000, prompt_logprobs=20
    ),
    "20 prompts of 2,000 and log-probabilities": lambda number: _completion(
        prompt=[[number + 5] * 2000] * 20, prompt_logprobs=20
    ),
    "a schema of 200 KB": lambda number: _schema(
        number, **{f"property_{field}": {"type": "string", "maxLength": field} for field in range(4_000)}
    ),
    "a schema of many states": lambda number: _schema(
        number, states={"type": "integer", "multipleOf": 999_983}
    ),
    "200 KB and 40 tools to /v1/responses": lambda number: _post(
        "/v1/responses",
        model="turnout-tiny",
        input=f"{number} " + "word, " * 20_000,
        tools=_tools(40, 80_000),
        max_output_tokens=16,
    ),
    "8 tools, one to be called": lambda number: _post(
        CHAT,
        messages=[{"role": "user", "content": f"{number}"}],
        tools=[
            {"type": "function", "function": {name: tool[name] for name in tool if name != "type"}}
            for tool in _tools(8, 200)
        ],
        tool_choice="required",
        max_tokens=16,
    ),
    "beams": lambda _: _completion(use_beam_search=True, n=8, beam_width=64, max_tokens=30),
    "a map of the pool": lambda _: _get("/admin/kv?map=true"),
    "metrics": lambda _: _get("/metrics"),
}
"""What a client sends, by its number."""
