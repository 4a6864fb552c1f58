"""What some clients send must not cost the others anything."""

from __future__ import annotations

import threading
from collections.abc import Sequence

import pytest
from running_server import RunningServer, Start, running

from turnout.config import EngineConfig, ServerConfig
from turnout.text.tokenizer import Tokenizer

COMPLETIONS = "/v1/completions"
CHAT = "/v1/chat/completions"
HI = [{"role": "user", "content": "hi"}]


@pytest.mark.parametrize("prompt", ["a", [65]])
def test_prompts_are_counted_before_they_are_served(server: RunningServer, prompt: object) -> None:
    """A hundred thousand prompts, half a megabyte, kept the server from answering anybody for 16 seconds."""
    response = server.post(COMPLETIONS, prompt=[prompt] * 2049)
    assert response.status_code == 400
    assert "at most 2048 prompts" in response.json()["error"]["message"]


@pytest.mark.parametrize(
    ("path", "field", "item"),
    [(COMPLETIONS, "stop_token_ids", "x"), (CHAT, "messages", 5), ("/detokenize", "tokens", "x")],
)
def test_only_the_first_wrong_item_is_reported(
    server: RunningServer, monkeypatch: pytest.MonkeyPatch, path: str, field: str, item: object
) -> None:
    """An error was made for each of millions of wrong items, which took all the memory."""
    from turnout.server.http.bodies import values

    counts: list[int] = []
    explain = values._explain
    monkeypatch.setattr(
        values,
        "_explain",
        lambda error, content: counts.append(error.error_count()) or explain(error, content),
    )
    response = server.post(path, **{"prompt": "a", field: [item] * 1000})
    assert response.status_code == 400
    assert response.json()["error"]["param"].startswith(f"{field}[0]")
    assert counts == [1]


class Observed(Tokenizer):
    """Notes in which thread it decodes."""

    threads: list[str] = []  # noqa: RUF012  # one server's

    def decode(self, ids: Sequence[int], *, skip_special_tokens: bool = True) -> str:
        self.threads.append(threading.current_thread().name)
        return super().decode(ids, skip_special_tokens=skip_special_tokens)


def test_an_echo_is_decoded_once_and_beside_the_event_loop(tokenizer: Tokenizer) -> None:
    """It was decoded in the event loop, for each of `n` choices: long prompts stopped every other stream."""
    observed = Observed(tokenizer.backend)
    with running(observed, EngineConfig(model="echo"), ServerConfig()) as server:
        ids = observed.encode("hello")
        answer = server.post(COMPLETIONS, prompt=ids, echo=True, n=2, max_tokens=len(ids)).json()
    assert answer["choices"][0]["text"] == "hellohello"
    assert len(observed.threads) == 1 and observed.threads[0].startswith("short-texts")


@pytest.mark.parametrize(
    ("path", "body"),
    [
        (COMPLETIONS, {"prompt": "hi", "add_special_tokens": None, "priority": None, "max_tokens": None}),
        (CHAT, {"messages": HI, "add_generation_prompt": None, "continue_final_message": None}),
        ("/tokenize", {"prompt": "hi", "add_special_tokens": None}),
    ],
)
def test_null_always_means_not_given(server: RunningServer, path: str, body: dict[str, object]) -> None:
    """Some fields were refused as null; clients fill in null for whatever their caller leaves out."""
    assert server.post(path, **body).status_code == 200


def test_the_scheme_of_a_key_may_be_written_in_any_case(start: Start) -> None:
    """``bearer KEY`` got 401; RFC 9110 has schemes in any case."""
    server = start(api_key="secret")
    for given in ("bearer secret", "BEARER  secret"):
        assert server.http.get("/v1/models", headers={"Authorization": given}).status_code == 200
    for given in ("Basic secret", "secret", "Bearer", "Bearer secret secret"):
        assert server.http.get("/v1/models", headers={"Authorization": given}).status_code == 401


def test_a_default_of_16_tokens_is_no_reason_to_refuse_a_long_prompt(server: RunningServer) -> None:
    """With 10 tokens of room, a request that asked for no number of tokens was told that 16 do not fit."""
    prompt = [5] * (512 - 10)
    answer = server.post(COMPLETIONS, prompt=prompt, ignore_eos=True).json()
    assert answer["usage"]["completion_tokens"] == 10
    assert server.post(COMPLETIONS, prompt=prompt, max_tokens=16).status_code == 400


@pytest.mark.parametrize(
    ("path", "body"),
    [
        (COMPLETIONS, {"prompt": "x" * 90_000}),
        (CHAT, {"messages": [{"role": "user", "content": "x" * 90_000}]}),
    ],
)
def test_a_text_that_must_be_too_long_is_refused_before_it_is_tokenized(
    server: RunningServer, path: str, body: dict[str, object]
) -> None:
    """It took 13 seconds and 900 MB to find that out."""
    answer = server.post(path, **body)
    assert answer.status_code == 400
    assert "90000 characters" in answer.json()["error"]["message"]
