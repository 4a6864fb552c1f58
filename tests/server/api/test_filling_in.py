"""Completions with a `suffix`: the model sees its own tokens for a missing part."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager

import openai
import pytest
from asking import CHAT, COMPLETIONS
from running_server import RunningServer, running
from tokenizers import AddedToken, decoders, models, pre_tokenizers
from tokenizers import Tokenizer as Backend

from turnout.config import EngineConfig, ServerConfig
from turnout.server.api import respond
from turnout.text.tokenizer import Tokenizer

EXCLUDED = [({"echo": True}, "echo"), ({"truncate_prompt_tokens": 2}, "truncate_prompt_tokens")]
PROMPT = "<fim_prefix>def f():<fim_suffix>\n    return x<fim_middle>"


@pytest.fixture(scope="module")
def coder() -> Iterator[RunningServer]:
    """Its tokenizer is StarCoder's in small; the engine repeats the prompt."""
    with served() as server:
        yield server


@pytest.fixture(scope="module")
def repository_coder() -> Iterator[RunningServer]:
    """Its tokenizer is StarCoder2's in small, with tokens before other files."""
    with served("<repo_name>", "<file_sep>") as server:
        yield server


@contextmanager
def served(*more: str) -> Iterator[RunningServer]:
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    backend = Backend(models.BPE(vocab={letter: id for id, letter in enumerate(alphabet)}, merges=[]))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    backend.decoder = decoders.ByteLevel()
    markers = ("<fim_prefix>", "<fim_suffix>", "<fim_middle>", "<fim_pad>", *more)
    backend.add_special_tokens([AddedToken(marker, normalized=False) for marker in markers])
    with running(Tokenizer(backend), EngineConfig(model="echo"), ServerConfig()) as server:
        yield server


def test_the_prompt_has_the_models_own_tokens(coder: RunningServer) -> None:
    body = {"prompt": "def f():", "suffix": "\n    return x", "max_tokens": 60, "skip_special_tokens": False}
    (choice,) = coder.post(COMPLETIONS, **body).json()["choices"]
    assert choice["text"].startswith(PROMPT)


def test_every_prompt_of_a_list_is_filled_in(coder: RunningServer) -> None:
    body = {"prompt": ["a", [65]], "suffix": "z", "max_tokens": 5, "skip_special_tokens": False}
    texts = [choice["text"] for choice in coder.post(COMPLETIONS, **body).json()["choices"]]
    assert texts[0] == "<fim_prefix>a<fim_suffix>z<fim_middle>"
    assert texts[1].endswith("<fim_suffix>z<fim_middle>")


def test_openais_client_has_a_field_for_it(coder: RunningServer) -> None:
    client = openai.OpenAI(base_url=f"{coder.url}/v1", api_key="none", max_retries=0)
    asked = client.completions.create(model="echo", prompt="a", suffix="b", max_tokens=1)
    assert asked.usage is not None and asked.usage.prompt_tokens == 5


def test_a_token_that_ends_the_part_ends_the_text(coder: RunningServer) -> None:
    ids = coder.post("/tokenize", prompt="a<fim_pad>b").json()["tokens"]
    body = {"prompt": ids, "suffix": "c", "max_tokens": 20}
    (choice,) = coder.post(COMPLETIONS, **body).json()["choices"]
    assert choice["finish_reason"] == "stop" and choice["text"] == "a"


def test_control_tokens_in_the_file_are_plain_text(coder: RunningServer) -> None:
    """A <fim_suffix> in the file ended the prefix for the model."""
    file = "x = '<fim_suffix>'<fim_pad>"
    body = {"prompt": file, "suffix": file, "max_tokens": 80, "skip_special_tokens": False}
    (choice,) = coder.post(COMPLETIONS, **body).json()["choices"]
    assert choice["text"].startswith(f"<fim_prefix>{file}<fim_suffix>{file}<fim_middle>")
    body = {"input_prefix": file, "input_suffix": file, "prompt": file, "input_extra": [{"text": file}]}
    answer = coder.post(INFILL, **body, n_predict=200).json()
    assert answer["content"].startswith(f"--- snippet ---\n\n{file}\n{file * 3}"), "control tokens are hidden"
    assert answer["tokens_evaluated"] == 3 + len(f"--- snippet ---\n\n{file}\n{file * 3}")


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"prompt": "a" * 40_000, "suffix": "b"}, "prompt"),
        ({"prompt": "a", "suffix": "b" * 40_000}, "suffix"),
    ],
)
def test_a_text_that_is_too_long_is_named(
    coder: RunningServer, fields: dict[str, object], param: str
) -> None:
    refused = coder.post(COMPLETIONS, **fields)
    assert refused.status_code == 400 and refused.json()["error"]["param"] == param


@pytest.mark.parametrize(("fields", "param"), EXCLUDED)
def test_what_does_not_go_with_it_is_refused(
    coder: RunningServer, fields: dict[str, object], param: str
) -> None:
    refused = coder.post(COMPLETIONS, prompt="a", suffix="b", **fields)
    assert refused.status_code == 400 and refused.json()["error"]["param"] == param


def test_a_model_without_such_tokens_refuses_it_by_name(server: RunningServer) -> None:
    refused = server.post(COMPLETIONS, prompt="a", suffix="b")
    assert refused.status_code == 400
    error = refused.json()["error"]
    assert error["param"] == "suffix" and "no tokens for that" in error["message"]
    assert server.post(COMPLETIONS, prompt="a", suffix="", max_tokens=1).status_code == 200
    chat = {"messages": [{"role": "user", "content": "a"}], "suffix": "b"}
    assert server.post(CHAT, **chat).status_code == 400


# ------------------------------------------------------------------ llama.cpp's /infill


INFILL = "/infill"
END = "!"
"""The text of the token that ends the engine's texts."""


def test_infill_fills_in(coder: RunningServer) -> None:
    body = {"input_prefix": "ab", "input_suffix": "z", "prompt": "c", "n_predict": 2}
    answer = coder.post(INFILL, **body).json()
    assert (answer["content"], answer["stop"], answer["stop_type"]) == ("a", True, "limit"), (
        "markers are hidden"
    )
    assert (answer["tokens_predicted"], answer["tokens_evaluated"]) == (2, 7)
    assert answer["timings"]["prompt_n"] + answer["timings"]["cache_n"] == 7
    assert answer["timings"]["predicted_n"] == 2 and answer["timings"]["predicted_per_second"] > 0


def test_infill_as_a_stream(coder: RunningServer) -> None:
    body = {"input_prefix": "abcd", "input_suffix": "z", "n_predict": 4, "stream": True}
    lines = [line for line in coder.post(INFILL, **body).text.split("\n\n") if line]
    events = [json.loads(line.removeprefix("data: ")) for line in lines]
    assert "".join(event["content"] for event in events) == "abc"
    assert [event["stop"] for event in events] == [False] * (len(events) - 1) + [True]
    assert events[-1]["tokens_predicted"] == 4 and "timings" not in events[0]


def test_infill_tells_what_stopped_it(coder: RunningServer) -> None:
    by_word = coder.post(INFILL, input_prefix="abc", stop="c").json()
    assert (by_word["content"], by_word["stop_type"], by_word["stopping_word"]) == ("ab", "word", "c")
    by_token = coder.post(INFILL, input_prefix="a" + END).json()
    assert (by_token["content"], by_token["stop_type"]) == ("a", "eos")


def test_infill_only_computes_a_prompt_for_requests_to_come(coder: RunningServer) -> None:
    answer = coder.post(INFILL, input_prefix="abc", n_predict=0).json()
    assert (answer["content"], answer["tokens_predicted"]) == ("", 0)


def test_infill_takes_what_editors_send(coder: RunningServer) -> None:
    """As llama.vim does."""
    hints = {"samplers": ["top_k", "infill"], "cache_prompt": True, "t_max_prompt_ms": 500, "n_indent": 4}
    chosen = ["content", "timings/prompt_n", "truncated", "nothing"]
    body = {"input_prefix": "abc", "n_predict": 2, "seed": -1, "top_k": 40, "t_max_predict_ms": 1000, **hints}
    answer = coder.post(INFILL, **body, response_fields=chosen).json()
    assert answer.keys() == {"content", "timings/prompt_n", "truncated"}


def test_fields_are_chosen_of_large_answers_too(
    coder: RunningServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(respond, "LARGE", 1)
    answer = coder.post(INFILL, input_prefix="abc", n_predict=2, response_fields=["content"])
    assert answer.status_code == 200 and answer.json().keys() == {"content"}


def test_no_chosen_field_means_all_of_them(coder: RunningServer) -> None:
    answer = coder.post(INFILL, input_prefix="abc", n_predict=2, response_fields=[]).json()
    assert {"content", "stop", "timings"} <= answer.keys()


def test_the_last_event_of_a_stream_has_the_chosen_fields(coder: RunningServer) -> None:
    chosen = ["stop", "timings/predicted_n", "nothing"]
    body = {"input_prefix": "abcd", "n_predict": 3, "stream": True, "response_fields": chosen}
    lines = [line for line in coder.post(INFILL, **body).text.split("\n\n") if line]
    *before, last = [json.loads(line.removeprefix("data: ")) for line in lines]
    assert last == {"stop": True, "timings/predicted_n": 3}
    assert "".join(event["content"] for event in before) == "ab"


def test_more_tokens_than_fit_are_as_many_as_fit(coder: RunningServer) -> None:
    """As in llama.cpp. The prefix was refused, with a room of -76 tokens."""
    asked = {"input_prefix": "a" * 500, "input_suffix": "b", "input_extra": [{"text": "c"}]}
    for n_predict in (8, 100, 600, 10**9):
        answer = coder.post(INFILL, **asked, n_predict=n_predict).json()
        assert (answer["tokens_evaluated"], answer["tokens_predicted"]) == (504, 8)


def test_infill_goes_on_after_the_ends_that_it_ignores(repository_coder: RunningServer) -> None:
    extra = [{"text": "x"}]
    by_token = repository_coder.post(INFILL, input_prefix="a", input_extra=extra).json()
    assert (by_token["content"], by_token["stop_type"]) == ("", "eos"), "the prompt begins with <repo_name>"
    body = {"input_prefix": "a" + END, "input_extra": extra, "n_predict": 40, "ignore_eos": True}
    answer = repository_coder.post(INFILL, **body).json()
    assert (answer["tokens_predicted"], answer["stop_type"]) == (40, "limit")


def test_infill_has_other_files_as_far_as_they_fit(coder: RunningServer) -> None:
    extra = [{"filename": "a.py", "text": "x" * 400}, {"text": "y" * 400}]
    answer = coder.post(INFILL, input_prefix="abc", input_extra=extra, n_predict=30).json()
    assert answer["content"].startswith("--- snippet ---\n\nyyy")


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"input_prefix": "a" * 600}, "input_prefix"),
        ({"input_prefix": "a" * 300, "input_suffix": "a" * 300}, "input_prefix"),
        ({"n_predict": -2}, "n_predict"),
        ({"input_extra": [{}]}, "input_extra[0].text"),
        ({"mirostat": 2}, "mirostat"),
        ({"temperature": -1}, "temperature"),
        ({"input_prefix": "a" * 40_000}, "input_prefix"),
        ({"input_suffix": "a" * 40_000}, "input_suffix"),
        ({"input_suffix": "a" * 600}, "input_suffix"),
        ({"prompt": "a" * 600}, "prompt"),
        ({"input_extra": [{"text": "a" * 40_000}]}, "input_extra"),
        ({"logit_bias": 1}, "logit_bias"),
        ({"logit_bias": [[65]]}, "logit_bias"),
        ({"logit_bias": [[65, True]]}, "logit_bias"),
        ({"logit_bias": [[1.5, 1]]}, "logit_bias"),
        ({"logit_bias": [[10**6, 1]]}, "logit_bias"),
        ({"logit_bias": [[-1, 1]]}, "logit_bias"),
        ({"logit_bias": [[2**63, 1]]}, "logit_bias"),
        ({"logit_bias": {str(2**63): 1}}, "logit_bias"),
        ({"logit_bias": [[65, 1]] * 4097}, "logit_bias"),
        ({"logit_bias": [["a" * 70_000, 1]]}, "logit_bias"),
    ],
)
def test_infill_refuses_by_name(coder: RunningServer, fields: dict[str, object], param: str) -> None:
    refused = coder.post(INFILL, **fields)
    assert refused.status_code == 400 and refused.json()["error"]["param"] == param


def test_infill_of_a_model_that_cannot(server: RunningServer) -> None:
    """The error named `input_suffix`, which the client had not sent."""
    refused = server.post(INFILL, input_prefix="a")
    assert refused.status_code == 400 and "no tokens for that" in refused.json()["error"]["message"]
    assert refused.json()["error"]["param"] == "model" and "leave out" not in refused.text
