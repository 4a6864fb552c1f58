"""The official client, in its strictest mode, understands everything the server says."""

from __future__ import annotations

from collections.abc import Iterator

import openai
import pytest
from asking import strict_client
from running_server import RunningServer

from turnout.text.tokenizer import Tokenizer


@pytest.fixture
def client(server: RunningServer) -> Iterator[openai.OpenAI]:
    with strict_client(server.url) as client:
        yield client


@pytest.fixture
def lenient(client: openai.OpenAI) -> Iterator[openai.OpenAI]:
    """For streamed completions: the strict one wants a finish_reason in each chunk, which OpenAI's lack."""
    with openai.OpenAI(base_url=client.base_url, api_key="none", max_retries=0) as lenient:
        yield lenient


def chat(text: str) -> list[dict[str, str]]:
    return [{"role": "user", "content": text}]


def test_models(client: openai.OpenAI) -> None:
    (model,) = client.models.list().data
    assert model.id == "echo"
    assert client.models.retrieve("echo").object == "model"


def test_completion(client: openai.OpenAI) -> None:
    answer = client.completions.create(model="echo", prompt="abc")
    (choice,) = answer.choices
    assert choice.text == "abcabcabcabcabca"  # 16 tokens by default, as OpenAI's
    assert choice.finish_reason == "length"
    assert answer.usage is not None
    assert (answer.usage.prompt_tokens, answer.usage.completion_tokens, answer.usage.total_tokens) == (
        3,
        16,
        19,
    )


def test_completion_of_several_prompts_and_choices(client: openai.OpenAI) -> None:
    answer = client.completions.create(model="echo", prompt=["abc", "xyz"], n=2, max_tokens=3, echo=True)
    assert [choice.text for choice in answer.choices] == ["abcabc", "abcbca", "xyzxyz", "xyzyzx"]
    assert [choice.index for choice in answer.choices] == [0, 1, 2, 3]
    assert answer.usage is not None and answer.usage.completion_tokens == 12


def test_completion_of_tokens(client: openai.OpenAI) -> None:
    tokens = [65, 66, 67]
    one = client.completions.create(model="echo", prompt=tokens, max_tokens=3)
    two = client.completions.create(model="echo", prompt=[tokens, tokens], max_tokens=3)
    assert [choice.text for choice in two.choices] == [one.choices[0].text] * 2


def test_completion_logprobs(client: openai.OpenAI) -> None:
    answer = client.completions.create(model="echo", prompt="ab", max_tokens=3, logprobs=2)
    logprobs = answer.choices[0].logprobs
    assert logprobs is not None
    assert logprobs.tokens == ["a", "b", "a"]
    assert logprobs.token_logprobs == [-0.5] * 3
    assert logprobs.text_offset == [0, 1, 2]
    assert logprobs.top_logprobs is not None and logprobs.top_logprobs[0] == {"a": -0.5, "b": -1.5}


def test_logprobs_of_an_echo(lenient: openai.OpenAI) -> None:
    """What evaluation harnesses ask for: the prompt's own log-probabilities, and those of what follows.

    The first has none, as from OpenAI, whose own client's types do not know that.
    """
    answer = lenient.completions.create(model="echo", prompt="abc", max_tokens=2, logprobs=1, echo=True)
    (choice,) = answer.choices
    logprobs = choice.logprobs
    assert choice.text == "abcab" and logprobs is not None
    assert logprobs.tokens == ["a", "b", "c", "a", "b"]
    assert logprobs.token_logprobs == [None, -1, -2, -0.5, -0.5]
    assert logprobs.text_offset == [0, 1, 2, 3, 4]
    assert logprobs.top_logprobs is not None
    assert logprobs.top_logprobs[:2] == [None, {"c": -0.25, "b": -1}]


def test_offsets_in_an_echo(lenient: openai.OpenAI, tokenizer: Tokenizer) -> None:
    """A token behind an incomplete character had its place, and special tokens that are hidden took room."""
    byte, *_ = tokenizer.encode("🦀")
    letters, end = tokenizer.encode("ab"), tokenizer.encode("<|eos|>")
    for prompt, text, offsets in (
        ("a🦀<|eos|>b", "a🦀<|eos|>ba", [0, 1, 1, 1, 1, 2, 9, 10]),
        ([byte, *letters], "\ufffdab\ufffd", [0, 1, 2, 3]),
        ([*letters, *end, *letters], "ababa", [0, 1, 2, 2, 3, 4]),
    ):
        asked = {"prompt": prompt, "max_tokens": 1, "logprobs": 0, "echo": True}
        (choice,) = lenient.completions.create(model="echo", **asked).choices  # type: ignore[call-overload]
        assert choice.text == text and choice.logprobs.text_offset == offsets


def test_prompt_logprobs(client: openai.OpenAI) -> None:
    two = client.completions.create(
        model="echo", prompt=["ab", "xyz"], max_tokens=1, n=2, extra_body={"prompt_logprobs": 1}
    )
    first, _, third, _ = (choice.model_extra["prompt_logprobs"] for choice in two.choices)  # type: ignore[index]
    assert len(first) == 2 and len(third) == 3 and first[0] is None
    assert all(choice.logprobs is None for choice in two.choices)
    assert {entry["decoded_token"]: entry["rank"] for entry in first[1].values()} == {"b": None, "c": 1}
    answer = client.chat.completions.create(
        model="echo", messages=chat("hi"), max_tokens=1, extra_body={"prompt_logprobs": 0}
    )
    assert answer.usage is not None and answer.model_extra is not None
    assert len(answer.model_extra["prompt_logprobs"]) == answer.usage.prompt_tokens


def test_streamed_completion(lenient: openai.OpenAI) -> None:
    stream = lenient.completions.create(
        model="echo", prompt="abc", n=2, max_tokens=4, stream=True, stream_options={"include_usage": True}
    )
    texts, reasons, usages = {0: "", 1: ""}, {}, []
    for chunk in stream:
        for choice in chunk.choices:
            texts[choice.index] += choice.text
            reasons[choice.index] = choice.finish_reason
        usages.append(chunk.usage)
    assert texts == {0: "abca", 1: "bcab"}
    assert reasons == {0: "length", 1: "length"}
    assert usages[:-1] == [None] * (len(usages) - 1)
    assert usages[-1] is not None and usages[-1].completion_tokens == 8


def test_chat(client: openai.OpenAI) -> None:
    answer = client.chat.completions.create(
        model="echo", messages=chat("abc"), max_completion_tokens=4, logprobs=True, top_logprobs=2, n=2
    )
    assert [choice.message.content for choice in answer.choices] == ["abca", "bcab"]
    logprobs = answer.choices[0].logprobs
    assert logprobs is not None and logprobs.content is not None
    assert [token.token for token in logprobs.content] == ["a", "b", "c", "a"]
    assert [top.logprob for top in logprobs.content[0].top_logprobs] == [-0.5, -1.5]
    assert logprobs.content[0].bytes == [97]


def test_chat_runs_to_the_context_length_by_default(client: openai.OpenAI) -> None:
    answer = client.chat.completions.create(model="echo", messages=chat("abc"))
    assert answer.choices[0].finish_reason == "length"
    assert answer.usage is not None and answer.usage.total_tokens == 512


def test_streamed_chat(client: openai.OpenAI) -> None:
    stream = client.chat.completions.create(
        model="echo", messages=chat("你好🦀"), max_tokens=40, stream=True, logprobs=True, top_logprobs=1
    )
    chunks = list(stream)
    assert chunks[0].choices[0].delta.role == "assistant"
    assert chunks[-1].choices[0].finish_reason == "length"
    text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks)
    assert text == "你好🦀" * 4
    shown = [chunk.choices[0].logprobs for chunk in chunks]
    spelt = b"".join(bytes(t.bytes or []) for part in shown if part for t in part.content or [])
    assert spelt.decode() == text


def test_stop_strings(client: openai.OpenAI, lenient: openai.OpenAI) -> None:
    for stop in ("a3", ["zz", "a3"]):
        answer = client.completions.create(model="echo", prompt="1a2a3", max_tokens=50, stop=stop)
        assert answer.choices[0].text == "1a2"
        assert answer.choices[0].finish_reason == "stop"
        assert answer.choices[0].stop_reason == "a3"
        assert answer.usage is not None and answer.usage.completion_tokens == 5
    stream = lenient.completions.create(model="echo", prompt="1a2a3", max_tokens=50, stop="a3", stream=True)
    chunks = [chunk.choices[0] for chunk in stream]
    assert "".join(chunk.text for chunk in chunks) == "1a2"
    assert chunks[-1].finish_reason == "stop"


def test_stop_tokens(client: openai.OpenAI) -> None:
    answer = client.completions.create(model="echo", prompt="ab<|eos|>")
    assert answer.choices[0].text == "ab" and answer.choices[0].finish_reason == "stop"
    answer = client.completions.create(
        model="echo",
        prompt="ab<|eos|>",
        max_tokens=6,
        extra_body={"ignore_eos": True, "skip_special_tokens": False},
    )
    assert answer.choices[0].text == "ab<|eos|>" * 2


def test_errors_are_the_clients_exceptions(client: openai.OpenAI) -> None:
    with pytest.raises(openai.BadRequestError, match="temperature"):
        client.completions.create(model="echo", prompt="a", temperature=-1)
    with pytest.raises(openai.NotFoundError, match="is not served here"):
        client.completions.create(model="no-such-model", prompt="a")
