"""Beams over HTTP, from a real model in a real engine process."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import openai
import pytest
from asking import CHAT, COMPLETIONS, events
from running_server import RunningServer, running

from turnout.config import EngineConfig, ServerConfig
from turnout.llm import LLM, CompletionOutput
from turnout.models.hub.resolve import resolve_model
from turnout.server.engine.client import FACTORY
from turnout.text.tokenizer import load_tokenizer

PROMPT = "def add(a, b):\n    return"
ENGINE = {"kv_memory": "64MiB", "device": "cpu", "dtype": "float32"}
BEAMS = {"use_beam_search": True, "beam_width": 4, "length_penalty": 0.5, "early_stopping": "never"}
ASKED: dict[str, Any] = {**BEAMS, "n": 3, "max_tokens": 12}


@pytest.fixture(scope="module")
def beams() -> Iterator[RunningServer]:
    """A server that searches unless told otherwise."""
    config = EngineConfig(decoding="beam:width=2", **ENGINE)
    tokenizer = load_tokenizer(resolve_model(config.model))
    with running(tokenizer, config, ServerConfig(), factory=FACTORY) as server:
        yield server


@pytest.fixture(scope="module")
def llm() -> LLM:
    return LLM(**ENGINE)


def offline(llm: LLM, prompt: str | list[int] = PROMPT, **given: Any) -> list[CompletionOutput]:
    (output,) = llm.generate([prompt], llm.default_params(**given), progress=False)
    return output.outputs


def test_completions_are_those_of_offline_use(beams: RunningServer, llm: LLM) -> None:
    answer = beams.post(COMPLETIONS, prompt=PROMPT, **ASKED).json()
    ours = offline(llm, **ASKED)
    assert [choice["index"] for choice in answer["choices"]] == [0, 1, 2]
    for choice, output in zip(answer["choices"], ours, strict=True):
        assert (choice["text"], choice["finish_reason"]) == (output.text, output.finish_reason)
        assert choice["cumulative_logprob"] == pytest.approx(output.cumulative_logprob, rel=1e-4)
        assert choice["beam_score"] == pytest.approx(output.beam_score, rel=1e-4)
    scores = [choice["beam_score"] for choice in answer["choices"]]
    assert scores == sorted(scores, reverse=True)
    assert answer["usage"]["completion_tokens"] == sum(len(output.token_ids) for output in ours)


def test_token_ids_and_the_prompt_alone(beams: RunningServer, llm: LLM) -> None:
    ours, body = offline(llm, **ASKED), {"prompt": PROMPT, **ASKED, "return_token_ids": True}
    whole = beams.post(COMPLETIONS, **body).json()["choices"]
    assert [choice["token_ids"] for choice in whole] == [output.token_ids for output in ours]
    found = events(beams, COMPLETIONS, **body, stream_options={"continuous_usage_stats": True})
    usages = [event["usage"]["completion_tokens"] for event in found if event["choices"][:1]]
    assert usages == [count for output in ours for count in (0, len(output.token_ids))]
    streamed = [c["token_ids"] for event in found for c in event["choices"] if c["token_ids"]]
    assert streamed == [output.token_ids for output in ours]
    alone = {"prompt": PROMPT, "echo": True, "logprobs": 1, "max_tokens": 0}
    searched, sampled = (
        beams.post(COMPLETIONS, **alone, use_beam_search=each).json() for each in (True, False)
    )
    assert searched["choices"][0]["logprobs"] == sampled["choices"][0]["logprobs"]
    assert searched["system_fingerprint"] == beams.client.ready.fingerprint != ""


def test_a_request_may_name_its_strategy(beams: RunningServer) -> None:
    """Then the server's defaults for beams do not apply."""
    body = {"prompt": PROMPT, "max_tokens": 8, "seed": 3}
    named = beams.post(COMPLETIONS, **body, decoding="sampling").json()["choices"]
    assert named == beams.post(COMPLETIONS, **body, use_beam_search=False).json()["choices"]
    for path, asked in ((COMPLETIONS, body), (CHAT, {"messages": [{"role": "user", "content": "a"}]})):
        refused = beams.post(path, **asked, decoding="guessing")
        assert refused.status_code == 400 and refused.json()["error"]["param"] == "decoding"
        assert "known: beam, greedy, sampling" in refused.json()["error"]["message"]


def test_chat_by_the_official_client(beams: RunningServer, llm: LLM) -> None:
    messages = [{"role": "user", "content": "import os"}]
    client = openai.OpenAI(base_url=f"{beams.url}/v1", api_key="none", max_retries=0)
    answer = client.chat.completions.create(
        model="turnout-tiny",
        messages=messages,  # type: ignore[arg-type]
        n=3,
        max_tokens=12,
        logprobs=True,
        top_logprobs=2,
        extra_body=BEAMS,
    )
    ours = offline(llm, llm.tokenizer.apply_chat_template(messages), **ASKED)
    assert [choice.message.content for choice in answer.choices] == [output.text for output in ours]
    for choice in answer.choices:
        assert choice.logprobs is not None and choice.logprobs.content is not None
        total = sum(token.logprob for token in choice.logprobs.content)
        assert choice.finish_reason == "length"
        assert choice.model_extra is not None
        assert choice.model_extra["cumulative_logprob"] == pytest.approx(total, rel=1e-4)


@pytest.mark.parametrize("path", [COMPLETIONS, CHAT])
def test_streamed_they_come_whole_at_the_end(beams: RunningServer, path: str) -> None:
    chat = path == CHAT
    prompt = {"messages": [{"role": "user", "content": "import os"}]} if chat else {"prompt": PROMPT}
    whole = beams.post(path, **prompt, **ASKED).json()["choices"]
    texts = ["", "", ""]
    for event in events(beams, path, **prompt, **ASKED):
        (choice,) = event["choices"]
        piece = choice["delta"].get("content", "") if chat else choice["text"]
        assert not (piece and texts[choice["index"]]), "one piece each"
        texts[choice["index"]] += piece
        ended = whole[choice["index"]]
        if choice["finish_reason"]:
            for name in ("finish_reason", "stop_reason", "cumulative_logprob", "beam_score"):
                assert choice[name] == ended[name]
        else:
            assert "beam_score" not in choice
    assert texts == [choice["message"]["content"] if chat else choice["text"] for choice in whole]


def test_who_says_nothing_gets_the_servers_beams(beams: RunningServer, llm: LLM) -> None:
    (choice,) = beams.post(COMPLETIONS, prompt=PROMPT, max_tokens=12).json()["choices"]
    (ours,) = offline(llm, use_beam_search=True, beam_width=2, max_tokens=12)
    assert choice["text"] == ours.text and choice["beam_score"] == pytest.approx(ours.beam_score, rel=1e-4)


def test_who_asks_for_sampling_is_sampled(beams: RunningServer, llm: LLM) -> None:
    for asked in ({"temperature": 0}, {"use_beam_search": False, "seed": 5}, {"top_p": 0.5, "seed": 5}):
        (choice,) = beams.post(COMPLETIONS, prompt=PROMPT, max_tokens=12, **asked).json()["choices"]
        (ours,) = offline(llm, max_tokens=12, **asked)
        assert choice["text"] == ours.text and "beam_score" not in choice


def test_a_stop_string_cuts_the_texts_and_changes_no_score(beams: RunningServer) -> None:
    plain = beams.post(COMPLETIONS, prompt=PROMPT, **ASKED).json()["choices"]
    stop = plain[0]["text"][5:8]
    cut = beams.post(COMPLETIONS, prompt=PROMPT, stop=stop, **ASKED).json()["choices"]
    assert cut[0]["text"] == plain[0]["text"].partition(stop)[0]
    assert (cut[0]["finish_reason"], cut[0]["stop_reason"]) == ("stop", stop)
    assert [choice["beam_score"] for choice in cut] == [choice["beam_score"] for choice in plain]


def test_what_does_not_go_with_the_servers_beams_is_named(beams: RunningServer) -> None:
    for asked, param in (({"best_of": 3}, "best_of"), ({"n": 3}, "n")):
        response = beams.post(COMPLETIONS, prompt=PROMPT, **asked)
        assert response.status_code == 400 and response.json()["error"]["param"] == param
