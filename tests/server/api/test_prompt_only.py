"""`max_tokens` of 0: the prompt's log-probabilities and no text, as evaluation harnesses ask for them."""

from __future__ import annotations

from typing import Any

import openai
import pytest
from asking import COMPLETIONS, events, text
from running_server import RunningServer, eventually

SCORED: dict[str, Any] = {"prompt": "abc", "max_tokens": 0, "echo": True, "logprobs": 1}


def test_the_prompt_alone(server: RunningServer) -> None:
    answer = server.post(COMPLETIONS, **SCORED).json()
    (choice,) = answer["choices"]
    assert choice["text"] == "abc" and choice["finish_reason"] == "length"
    assert choice["logprobs"]["tokens"] == ["a", "b", "c"]
    assert choice["logprobs"]["token_logprobs"] == [None, -1, -2]
    assert choice["logprobs"]["text_offset"] == [0, 1, 2]
    assert answer["usage"]["completion_tokens"] == 0 and answer["usage"]["total_tokens"] == 3
    eventually(lambda: server.work() == 0)


def test_it_is_the_beginning_of_what_more_tokens_give(server: RunningServer) -> None:
    more = server.post(COMPLETIONS, **{**SCORED, "max_tokens": 4}).json()["choices"][0]
    alone = server.post(COMPLETIONS, **SCORED).json()["choices"][0]
    for name, values in alone["logprobs"].items():
        assert values == more["logprobs"][name][:3], name


@pytest.mark.parametrize("body", [SCORED, {**SCORED, "prompt": ["abc", "xyzz"], "n": 2}])
def test_streamed(server: RunningServer, body: dict[str, Any]) -> None:
    whole = server.post(COMPLETIONS, **body).json()["choices"]
    found = events(server, COMPLETIONS, **body, stream_options={"include_usage": True})
    assert found.pop()["usage"]["completion_tokens"] == 0
    for choice in whole:
        parts = [event for event in found if event["choices"][0]["index"] == choice["index"]]
        assert text(parts) == choice["text"]
        assert parts[0]["choices"][0]["logprobs"] == choice["logprobs"]
        assert parts[-1]["choices"][0]["finish_reason"] == "length"


def test_an_end_of_sequence_is_not_what_ended_it(server: RunningServer) -> None:
    choice = server.post(COMPLETIONS, **{**SCORED, "prompt": "<|eos|>"}).json()["choices"][0]
    assert choice["finish_reason"] == "length" and choice["stop_reason"] is None


def test_prompt_logprobs_without_an_echo(server: RunningServer) -> None:
    body = {"prompt": "abc", "max_tokens": 0, "prompt_logprobs": 1, "return_token_ids": True}
    choice = server.post(COMPLETIONS, **body).json()["choices"][0]
    assert choice["text"] == "" and choice["token_ids"] == [] and len(choice["prompt_logprobs"]) == 3


def test_nothing_at_all_is_refused(server: RunningServer) -> None:
    for body in ({"max_tokens": 0}, {"max_tokens": 0, "logprobs": 1}, {"max_tokens": -1, "echo": True}):
        response = server.post(COMPLETIONS, prompt="abc", **body)
        assert response.status_code == 400 and response.json()["error"]["param"] == "max_tokens"


def test_log_probabilities_of_an_echo_are_streamed(server: RunningServer) -> None:
    """With text after it too; the offsets go on where the echo ends."""
    body = {"prompt": ["abc", "hello 你好"], "max_tokens": 5, "echo": True, "logprobs": 1}
    whole = server.post(COMPLETIONS, **body).json()["choices"]
    found = [event["choices"][0] for event in events(server, COMPLETIONS, **body)]
    for choice in whole:
        parts = [part for part in found if part["index"] == choice["index"]]
        assert "".join(part["text"] for part in parts) == choice["text"]
        for name, values in choice["logprobs"].items():
            assert [value for part in parts for value in part["logprobs"][name]] == values, name


def test_prompt_logprobs_are_streamed_in_the_first_chunk(server: RunningServer) -> None:
    body = {"prompt": ["abc", "xyzz"], "max_tokens": 2, "prompt_logprobs": 1}
    whole = server.post(COMPLETIONS, **body).json()["choices"]
    found = [event["choices"][0] for event in events(server, COMPLETIONS, **body)]
    for choice in whole:
        first, *others = [part for part in found if part["index"] == choice["index"]]
        assert first["prompt_logprobs"] == choice["prompt_logprobs"]
        assert not any("prompt_logprobs" in part for part in others)


def test_the_official_client(server: RunningServer) -> None:
    """Lenient, since its strict types know no prompt whose first token has no log-probability."""
    client = openai.OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0)
    answer = client.completions.create(model="echo", **SCORED)
    assert answer.choices[0].text == "abc"
