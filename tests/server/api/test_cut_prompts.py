"""`truncate_prompt_tokens`, in vLLM's meaning: the last tokens of a prompt are kept."""

from __future__ import annotations

from typing import Any

import pytest
from asking import CHAT, COMPLETIONS
from running_server import RunningServer

from turnout.text.tokenizer import Tokenizer

CONTEXT = 512
TOKENIZE = "/tokenize"
FIELD = "truncate_prompt_tokens"


def asked(path: str, text: str) -> dict[str, Any]:
    if path == CHAT:
        return {"messages": [{"role": "user", "content": text}], "max_tokens": 2}
    return {"prompt": text} if path == TOKENIZE else {"prompt": text, "max_tokens": 2}


@pytest.mark.parametrize("path", [COMPLETIONS, CHAT])
def test_the_last_tokens_are_kept(server: RunningServer, path: str) -> None:
    answer = server.post(path, **asked(path, "abcdefgh"), **{FIELD: 3}).json()
    assert answer["usage"]["prompt_tokens"] == 3
    (choice,) = answer["choices"]
    assert (choice.get("text") or choice["message"]["content"]) == "fg", "the echo of what was kept"


def test_tokens_are_cut_like_text(server: RunningServer, tokenizer: Tokenizer) -> None:
    body = {"prompt": [tokenizer.encode("abcd"), tokenizer.encode("xy")], "max_tokens": 2, FIELD: 3}
    answer = server.post(COMPLETIONS, **body).json()
    assert [choice["text"] for choice in answer["choices"]] == ["bc", "xy"]


@pytest.mark.parametrize("given", ["text", "tokens"])
def test_an_echo_is_the_whole_prompt(server: RunningServer, tokenizer: Tokenizer, given: str) -> None:
    """The tokens that were kept had offsets as if the text began with them."""
    prompt = "xxxxxxxx" if given == "text" else tokenizer.encode("xxxxxxxx")
    body = {"prompt": prompt, "max_tokens": 1, "echo": True, "logprobs": 0, FIELD: 2}
    (choice,) = server.post(COMPLETIONS, **body).json()["choices"]
    assert choice["text"] == "x" * 9 and choice["logprobs"]["text_offset"] == [6, 7, 8]


def test_tokenize_shows_what_is_kept(server: RunningServer, tokenizer: Tokenizer) -> None:
    answer = server.post(TOKENIZE, prompt="abcdefgh", **{FIELD: 2}).json()
    assert answer["tokens"] == tokenizer.encode("abcdefgh")[-2:] and answer["count"] == 2


@pytest.mark.parametrize("path", [COMPLETIONS, CHAT])
def test_minus_1_keeps_as_many_as_leave_room(server: RunningServer, path: str) -> None:
    text = "ab" * 2000
    assert server.post(path, **asked(path, text)).status_code == 400
    answer = server.post(path, **asked(path, text), **{FIELD: -1}).json()
    assert answer["usage"]["prompt_tokens"] == CONTEXT - 2
    assert answer["usage"]["completion_tokens"] == 2


@pytest.mark.parametrize("path", [COMPLETIONS, CHAT, TOKENIZE])
@pytest.mark.parametrize(("value", "why"), [(0, "above 0"), (-2, "greater"), (CONTEXT + 1, "context length")])
def test_numbers_that_mean_nothing_are_refused(
    server: RunningServer, path: str, value: int, why: str
) -> None:
    refused = server.post(path, **asked(path, "abc"), **{FIELD: value})
    assert refused.status_code == 400
    error = refused.json()["error"]
    assert error["param"] == FIELD and why in error["message"]


def test_a_text_of_megabytes_is_not_tokenized_to_keep_a_few(start: Any) -> None:
    server = start(max_body_size=10**7)
    refused = server.post(COMPLETIONS, **asked(COMPLETIONS, "ab" * 10**6), **{FIELD: 3})
    assert refused.status_code == 400 and "at most 1,048,576" in refused.json()["error"]["message"]
