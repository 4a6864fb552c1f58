"""What clients ask for beside the text: token ids, tokens named by number, the usage in every chunk."""

from __future__ import annotations

from typing import Any

import pytest
from asking import CHAT, COMPLETIONS, events, strict_client, text
from running_server import RunningServer

from turnout.text.tokenizer import Tokenizer

HI = [{"role": "user", "content": "abc"}]
ASKED: dict[str, dict[str, Any]] = {COMPLETIONS: {"prompt": "abc"}, CHAT: {"messages": HI}}
BOTH = pytest.mark.parametrize("path", ASKED)


def token_ids(found: list[Any], index: int) -> list[int]:
    """All that a stream says of a choice's tokens."""
    choices = [choice for event in found for choice in event["choices"] if choice["index"] == index]
    return [token for choice in choices for token in choice.get("token_ids", [])]


def prompt_ids(answer: Any, path: str) -> list[list[int]]:
    """Of each choice; a chat has one prompt, beside its choices."""
    if path == CHAT:
        return [answer["prompt_token_ids"]] * len(answer["choices"])
    return [choice["prompt_token_ids"] for choice in answer["choices"]]


@BOTH
@pytest.mark.parametrize("options", [{}, {"n": 3}, {"n": 2, "best_of": 3}, {"n": 2, "stop": "bc"}])
def test_token_ids(server: RunningServer, tokenizer: Tokenizer, path: str, options: dict[str, Any]) -> None:
    body = {**ASKED[path], **options, "max_tokens": 5, "return_token_ids": True}
    answer = server.post(path, **body).json()
    plain = server.post(path, **{**body, "return_token_ids": False}).json()
    assert "token_ids" not in plain["choices"][0] and "prompt_token_ids" not in str(plain)
    assert (
        sum(len(choice["token_ids"]) for choice in answer["choices"]) <= answer["usage"]["completion_tokens"]
    )
    assert prompt_ids(answer, path) == [tokenizer.encode("abc")] * len(answer["choices"])
    for choice, other in zip(answer["choices"], plain["choices"], strict=True):
        shown = choice["text"] if path == COMPLETIONS else choice["message"]["content"]
        spelt = tokenizer.decode(choice["token_ids"])
        assert spelt == shown + (choice["stop_reason"] or "")
        assert other["finish_reason"] == choice["finish_reason"]
    if "best_of" in options:
        return  # it cannot be streamed
    found = events(server, path, **body)
    for choice in answer["choices"]:
        assert token_ids(found, choice["index"]) == choice["token_ids"]
    firsts = [next(e for e in found if e["choices"][0]["index"] == c["index"]) for c in answer["choices"]]
    assert [prompt_ids(first, path) for first in firsts] == [[tokenizer.encode("abc")]] * len(firsts)
    assert sum("prompt_token_ids" in str(event) for event in found) == len(firsts), "in first chunks alone"


def test_token_ids_of_several_prompts_with_an_echo(server: RunningServer, tokenizer: Tokenizer) -> None:
    body = {"prompt": ["abc", "xy"], "n": 2, "max_tokens": 2, "echo": True, "return_token_ids": True}
    answer = server.post(COMPLETIONS, **body).json()
    ids = [tokenizer.encode(prompt) for prompt in ("abc", "abc", "xy", "xy")]
    assert prompt_ids(answer, COMPLETIONS) == ids
    assert [tokenizer.decode(choice["token_ids"]) for choice in answer["choices"]] == ["ab", "bc", "xy", "yx"]
    found = events(server, COMPLETIONS, **body)
    assert [token_ids(found, index) for index in range(4)] == [c["token_ids"] for c in answer["choices"]]
    opening = {e["choices"][0]["index"]: e["choices"][0] for e in reversed(found)}
    assert [opening[index]["prompt_token_ids"] for index in range(4)] == ids
    assert [opening[index]["text"] for index in range(4)] == ["abc", "abc", "xy", "xy"]


def test_token_ids_have_the_token_that_stopped(server: RunningServer) -> None:
    """Its text is hidden, so that its chunk has none."""
    body = {"prompt": "ab<|eos|>", "return_token_ids": True}
    answer = server.post(COMPLETIONS, **body).json()["choices"][0]
    assert answer["text"] == "ab" and len(answer["token_ids"]) == 3 and answer["token_ids"][-1] == 0
    assert token_ids(events(server, COMPLETIONS, **body), 0) == answer["token_ids"]
    chat = {"messages": [{"role": "user", "content": "ab<|eos|>"}], "return_token_ids": True}
    assert token_ids(events(server, CHAT, **chat), 0) == answer["token_ids"]


@pytest.mark.parametrize("stream", [False, True])
def test_tokens_named_by_number(server: RunningServer, tokenizer: Tokenizer, stream: bool) -> None:
    ids = [f"token_id:{token}" for token in tokenizer.encode("abc")]
    named = {"return_tokens_as_token_ids": True, "max_tokens": 3}
    body = {**named, "prompt": "abc", "logprobs": 2, "echo": True}
    choices = (
        [c for event in events(server, COMPLETIONS, **body) for c in event["choices"]]
        if stream
        else server.post(COMPLETIONS, **body).json()["choices"]
    )
    found = [choice["logprobs"] for choice in choices if choice["logprobs"]]
    assert [token for part in found for token in part["tokens"]] == ids * 2
    tops = [top for part in found for top in part["top_logprobs"] if top]
    assert len(tops) == 5 and all(name.startswith("token_id:") for top in tops for name in top)
    body = {**named, "messages": HI, "logprobs": True, "top_logprobs": 1}
    choices = (
        [c for event in events(server, CHAT, **body) for c in event["choices"]]
        if stream
        else server.post(CHAT, **body).json()["choices"]
    )
    content = [token for choice in choices if choice["logprobs"] for token in choice["logprobs"]["content"]]
    assert [token["token"] for token in content] == ids
    assert [token["top_logprobs"][0]["token"] for token in content] == ids
    assert bytes(token["bytes"][0] for token in content) == b"abc", "bytes stay those of the text"


@BOTH
def test_the_usage_in_every_chunk(server: RunningServer, path: str) -> None:
    """Of the chunk's choice so far, as vLLM counts; the last chunk has the sum."""
    body = {**ASKED[path], "n": 2, "max_tokens": 3, "stream_options": {"continuous_usage_stats": True}}
    *chunks, last = events(server, path, **body)
    assert last["choices"] == [] and last["usage"]["completion_tokens"] == 6
    for index in range(2):
        usages = [event["usage"] for event in chunks if event["choices"][0]["index"] == index]
        counts = [usage["completion_tokens"] for usage in usages]
        assert counts == ([1, 2, 3] if path == COMPLETIONS else [0, 1, 2, 3, 3])
        assert {usage["prompt_tokens"] for usage in usages} == {3}
        assert all(usage["total_tokens"] == 3 + usage["completion_tokens"] for usage in usages)


def test_the_usage_counts_what_is_held_back(server: RunningServer) -> None:
    body = {"prompt": "1a2a3", "max_tokens": 50, "stop": "a3"}
    *chunks, last = events(server, COMPLETIONS, **body, stream_options={"continuous_usage_stats": True})
    assert text(chunks) == "1a2"
    assert [event["usage"]["completion_tokens"] for event in chunks] == [1, 3, 5]
    assert last["usage"]["completion_tokens"] == 5


def test_usage_stats_without_usage_are_refused(server: RunningServer) -> None:
    options = {"continuous_usage_stats": True, "include_usage": False}
    response = server.post(COMPLETIONS, prompt="a", stream=True, stream_options=options)
    assert response.status_code == 400 and response.json()["error"]["param"] == "stream_options"


def test_the_official_client_reads_them(server: RunningServer, tokenizer: Tokenizer) -> None:
    """In its strictest mode: what is added breaks none of its types."""
    with strict_client(server.url) as client:
        extra = {"return_token_ids": True, "return_tokens_as_token_ids": True}
        chunks = list(
            client.chat.completions.create(
                model="echo",
                messages=[{"role": "user", "content": "abc"}],
                max_tokens=3,
                logprobs=True,
                stream=True,
                stream_options={"include_usage": True, "continuous_usage_stats": True},  # type: ignore[typeddict-unknown-key]
                extra_body=extra,
            )
        )
        assert all(chunk.usage is not None and chunk.system_fingerprint == "echo-1" for chunk in chunks)
        whole = client.chat.completions.create(
            model="echo", messages=[{"role": "user", "content": "abc"}], max_tokens=3, extra_body=extra
        )
        assert whole.system_fingerprint == "echo-1" and whole.model_extra is not None
        assert whole.model_extra["prompt_token_ids"] == tokenizer.encode("abc")
        completion = client.completions.create(model="echo", prompt="abc", max_tokens=3, extra_body=extra)
        assert completion.system_fingerprint == "echo-1"
