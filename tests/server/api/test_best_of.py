"""``best_of``: more choices are generated than are returned, and the most likely come back.

The echo engine gives every token with log-probability -0.5, and begins choice i with the prompt's token i.
"""

from __future__ import annotations

import openai
import pytest
from asking import CHAT, COMPLETIONS
from running_server import RunningServer, eventually

HI = [{"role": "user", "content": "abc"}]


def test_the_most_likely_come_back_best_first(server: RunningServer) -> None:
    """Choices 0 to 2 are stopped after 5, 4 and 6 tokens: the fewer, the likelier."""
    body = {"prompt": "abc", "best_of": 3, "max_tokens": 20, "stop": "bcab"}
    everything = server.post(COMPLETIONS, **{**body, "best_of": None, "n": 3}).json()
    assert [choice["text"] for choice in everything["choices"]] == ["a", "", "ca"]

    best = server.post(COMPLETIONS, **body).json()
    assert [(choice["index"], choice["text"]) for choice in best["choices"]] == [(0, "")]
    two = server.post(COMPLETIONS, **body, n=2).json()
    assert [(choice["index"], choice["text"]) for choice in two["choices"]] == [(0, ""), (1, "a")]
    assert [choice["cumulative_logprob"] for choice in two["choices"]] == [-2.0, -2.5]
    for answer in (best, two):
        assert answer["usage"] == everything["usage"], "all that was generated is counted"
    eventually(lambda: server.work() == 0)


def test_of_each_prompt(server: RunningServer) -> None:
    body = {"best_of": 3, "n": 1, "max_tokens": 20, "stop": ["bcab", "yzxy"], "echo": True}
    answer = server.post(COMPLETIONS, prompt=["abc", "xyz"], **body).json()
    assert [(choice["index"], choice["text"]) for choice in answer["choices"]] == [(0, "abc"), (1, "xyz")]


def test_an_echo_is_of_the_choices_own_prompt(server: RunningServer) -> None:
    body = {"best_of": 3, "n": 2, "max_tokens": 2, "echo": True, "logprobs": 0}
    answer = server.post(COMPLETIONS, prompt=["abc", "xyz"], **body).json()
    begins = ["".join(choice["logprobs"]["tokens"])[:3] for choice in answer["choices"]]
    assert begins == ["abc", "abc", "xyz", "xyz"]


def test_chat_has_it_too(server: RunningServer) -> None:
    answer = server.post(CHAT, messages=HI, best_of=3, max_tokens=20, stop="bcab").json()
    (choice,) = answer["choices"]
    assert (choice["message"]["content"], choice["cumulative_logprob"]) == ("", -2.0)


def test_log_probabilities_are_shown_only_to_who_asks(server: RunningServer) -> None:
    body = {"prompt": "abc", "best_of": 2, "max_tokens": 2}
    (silent,) = server.post(COMPLETIONS, **body).json()["choices"]
    assert silent["logprobs"] is None
    (shown,) = server.post(COMPLETIONS, **body, logprobs=1).json()["choices"]
    assert shown["logprobs"]["token_logprobs"] == [-0.5, -0.5] and shown["cumulative_logprob"] == -1.0


def test_choices_without_ranks_have_none(server: RunningServer) -> None:
    for path, prompt in ((COMPLETIONS, {"prompt": "abc"}), (CHAT, {"messages": HI})):
        (choice,) = server.post(path, **prompt, best_of=1, max_tokens=2).json()["choices"]
        assert not {"cumulative_logprob", "beam_score"} & choice.keys()


def test_it_cannot_be_streamed_and_the_error_says_why(server: RunningServer) -> None:
    client = openai.OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0)
    with pytest.raises(openai.BadRequestError, match="which choices are best is known when all have ended"):
        client.completions.create(model="echo", prompt="a", best_of=2, stream=True)
    chunks = client.completions.create(model="echo", prompt="a", n=2, best_of=2, stream=True, max_tokens=2)
    assert {chunk.choices[0].index for chunk in chunks} == {0, 1}
