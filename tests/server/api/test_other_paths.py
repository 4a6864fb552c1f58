"""Paths beside those that generate: tokenization, what load balancers ask, and slashes at the end."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from asking import CHAT, COMPLETIONS, events
from running_server import RunningServer, Start, eventually

from turnout.text.tokenizer import Tokenizer

HI = [{"role": "user", "content": "hello"}, {"role": "assistant", "content": " wor"}]


def test_a_conversation_is_tokenized_as_chat_does(server: RunningServer) -> None:
    for options in (
        {},
        {"add_generation_prompt": False},
        {"add_generation_prompt": False, "continue_final_message": True},
    ):
        asked = {"messages": HI, **options}
        ids = server.post("/tokenize", **asked).json()["tokens"]
        answer = server.post(CHAT, **asked, max_tokens=1, return_token_ids=True).json()
        assert answer["prompt_token_ids"] == ids


def test_token_strings(server: RunningServer, tokenizer: Tokenizer) -> None:
    answer = server.post("/tokenize", prompt="hello 你", return_token_strs=True).json()
    assert answer["token_strs"] == [tokenizer.backend.id_to_token(token) for token in answer["tokens"]]
    assert "token_strs" not in server.post("/tokenize", prompt="hello").json()


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({}, "prompt"),
        ({"prompt": "a", "messages": HI}, "prompt"),
        ({"messages": []}, "prompt"),
        ({"messages": HI, "tools": [{"type": "function"}]}, "tools[0].function"),
        ({"messages": HI, "chat_template": "x"}, "chat_template"),
        ({"messages": HI, "chat_template_kwargs": {"messages": []}}, "chat_template_kwargs"),
        ({"messages": HI, "continue_final_message": True}, "continue_final_message"),
    ],
)
def test_what_cannot_be_tokenized_is_named(server: RunningServer, body: dict[str, Any], param: str) -> None:
    response = server.post("/tokenize", **body)
    assert response.status_code == 400 and response.json()["error"]["param"] == param


@pytest.mark.parametrize("wrong", [300, 999_999])
def test_tokens_outside_the_vocabulary_have_no_text(server: RunningServer, wrong: int) -> None:
    """They were left out of the text."""
    response = server.post("/detokenize", tokens=[5, wrong])
    error = response.json()["error"]
    assert response.status_code == 400 and error["param"] == "tokens"
    assert f"token id {wrong} is outside the vocabulary of 300 tokens" in error["message"]


def test_the_tokenizer_is_described(server: RunningServer) -> None:
    answer = server.http.get("/tokenizer_info").json()
    assert answer["tokenizer_class"] == "PreTrainedTokenizerFast" and "messages" in answer["chat_template"]


def test_ping_is_health(server: RunningServer) -> None:
    for response in (server.http.get("/ping"), server.http.post("/ping", content=b"anything")):
        assert response.status_code == 200 and response.json() == server.http.get("/health").json()


def test_load_counts_requests_until_their_last_byte(server: RunningServer) -> None:
    def load() -> int:
        count: int = server.http.get("/load").json()["server_load"]
        return count

    eventually(lambda: load() == 0)
    body = {"prompt": ["a", "b"], "max_tokens": 500, "user": "slow", "n": 2}
    with (
        ThreadPoolExecutor(1) as pool,
        server.http.stream("POST", COMPLETIONS, json={**body, "stream": True}),
    ):
        pool.submit(server.post, "/tokenize", prompt="a").result()
        assert load() == 1, "one request, whatever its prompts and choices"
    eventually(lambda: load() == 0)
    assert server.post(COMPLETIONS, prompt=5).status_code == 400 and load() == 0


def test_a_slash_at_the_end_changes_nothing(server: RunningServer) -> None:
    body = {"prompt": "abc", "max_tokens": 3}
    assert (
        server.post(f"{COMPLETIONS}/", **body).json()["choices"]
        == server.post(COMPLETIONS, **body).json()["choices"]
    )
    assert events(server, f"{COMPLETIONS}/", **body)
    for path in ("/health/", "/v1/models/", "/v1/models/echo/", "/admin/kv/", "/", "//"):
        assert server.http.get(path).status_code == 200, path
    assert server.http.get("/nowhere/").status_code == 404


def test_a_slash_opens_nothing(start: Start) -> None:
    server = start(api_key="secret", admin_key="admin")
    key = {"authorization": "Bearer secret"}
    for path in ("/health/", "/ping", "/load", "/metrics/"):
        assert server.http.get(path).status_code == 200
    for path in ("/v1/models/", "/tokenizer_info", "/admin/kv/"):
        assert server.http.get(path).status_code == 401
    assert server.http.get("/admin/kv/", headers=key).status_code == 401
