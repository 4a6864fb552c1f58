"""Completions with a `suffix`: the model sees its own tokens for a missing part."""

from __future__ import annotations

from collections.abc import Iterator

import openai
import pytest
from running_server import RunningServer, running
from streaming import CHAT, COMPLETIONS
from tokenizers import AddedToken, decoders, models, pre_tokenizers
from tokenizers import Tokenizer as Backend

from turnout.config import EngineConfig, ServerConfig
from turnout.text.tokenizer import Tokenizer

EXCLUDED = [({"echo": True}, "echo"), ({"truncate_prompt_tokens": 2}, "truncate_prompt_tokens")]
PROMPT = "<fim_prefix>def f():<fim_suffix>\n    return x<fim_middle>"


@pytest.fixture(scope="module")
def coder() -> Iterator[RunningServer]:
    """Its tokenizer is StarCoder's in small; the engine repeats the prompt."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    backend = Backend(models.BPE(vocab={letter: id for id, letter in enumerate(alphabet)}, merges=[]))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    backend.decoder = decoders.ByteLevel()
    markers = ("<fim_prefix>", "<fim_suffix>", "<fim_middle>", "<fim_pad>")
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
    body = {"prompt": "a<fim_pad>b", "suffix": "c", "max_tokens": 20}
    (choice,) = coder.post(COMPLETIONS, **body).json()["choices"]
    assert choice["finish_reason"] == "stop" and choice["text"] == "a"


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
