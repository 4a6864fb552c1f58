"""Which tokens a GGUF file's tokenizer adds to texts, its templates, and what lies beside the file."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from gguf_files import write_gguf

from turnout.core.errors import ModelError
from turnout.models.embedder.folder import read_embedder
from turnout.models.hub.resolve import resolve_model
from turnout.text.prompt.pooling_tokens import pair_tokens, text_tokens
from turnout.text.tokenizer import Tokenizer, load_tokenizer

SOURCE = resolve_model("turnout-tiny")
BEGIN, END = 1, 0
"""Ids of control tokens; the second one is the file's end token."""
MESSAGES = [{"role": "user", "content": "Hi"}]
TOOLS = [{"type": "function", "function": {"name": "find"}}]
Made = Callable[..., Path]


@pytest.fixture
def made(tmp_path: Path) -> Made:
    """made(changes, pre): the embedded model's file, with other metadata."""

    def write(changes: Mapping[str, Any] | None = None, pre: str = "qwen2") -> Path:
        return write_gguf(SOURCE, tmp_path / "tiny.gguf", tokenizer=True, pre=pre, changes=changes)

    return write


def tokenizer(file: Path) -> Tokenizer:
    return load_tokenizer(resolve_model(str(file)))


def refusal(file: Path) -> str:
    with pytest.raises(ModelError) as caught:
        resolve_model(str(file))
    return str(caught.value)


# ------------------------------------------------------------------ tokens around a text


def test_texts_end_with_the_end_token_where_the_file_says_so(made: Made) -> None:
    """As those of Qwen3-Embedding, whose last token's state is the vector."""
    plain, ending = tokenizer(made()), tokenizer(made({"tokenizer.ggml.add_eos_token": True}))
    assert ending.encode("a b") == [*plain.encode("a b"), END]
    assert text_tokens(ending, "a b", limit=64).ids == [*plain.encode("a b"), END]


def test_a_prompt_of_a_chat_template_has_no_second_end_token(made: Made) -> None:
    plain, ending = tokenizer(made()), tokenizer(made({"tokenizer.ggml.add_eos_token": True}))
    assert ending.apply_chat_template(MESSAGES) == plain.apply_chat_template(MESSAGES)


def test_both_texts_of_a_pair_have_the_tokens_around_them(made: Made) -> None:
    around = {
        "tokenizer.ggml.add_bos_token": True,
        "tokenizer.ggml.bos_token_id": BEGIN,
        "tokenizer.ggml.add_eos_token": True,
    }
    both = tokenizer(made(around))
    one, other = (both.encode(text, add_special_tokens=False) for text in ("a b", "c"))
    assert both.encode("a b") == [BEGIN, *one, END]
    assert pair_tokens(both, "a b", "c", limit=64).ids == [BEGIN, *one, END, BEGIN, *other, END]


@pytest.mark.parametrize("id", [-1, 10**6])
def test_a_token_that_is_to_be_added_must_be_there(made: Made, id: int) -> None:
    changes = {"tokenizer.ggml.add_bos_token": True, "tokenizer.ggml.bos_token_id": id}
    assert "tokenizer.ggml.add_bos_token = True needs a tokenizer.ggml.bos_token_id" in refusal(made(changes))


@pytest.mark.parametrize("pre", ["llama-bpe", "tekken", "falcon3"])
def test_a_word_that_is_a_token_needs_no_merges(made: Made, pre: str) -> None:
    """llama.cpp ignores merges for these, and begins texts with a token where the file does not say it."""

    def with_a_word(tokens: list[str]) -> list[str]:
        return [*tokens[:-1], "Zqxwv"]

    def without_the_last(merges: list[str]) -> list[str]:
        last = json.loads((SOURCE / "tokenizer.json").read_text())["model"]["vocab"]
        gone = max(last, key=last.__getitem__)
        return [merge for merge in merges if gone not in (merge.replace(" ", ""), *merge.split(" "))]

    changes = {
        "tokenizer.ggml.tokens": with_a_word,
        "tokenizer.ggml.merges": without_the_last,
        "tokenizer.ggml.add_bos_token": None,
        "tokenizer.ggml.bos_token_id": BEGIN,
    }
    whole = tokenizer(made(changes, pre))
    assert whole.encode("Zqxwv") == [BEGIN, whole.vocab_size - 1]


# ------------------------------------------------------------------ how tokens are pooled


@pytest.mark.parametrize(("kind", "pooling"), [(1, "mean"), (2, "cls"), (3, "last")])
def test_pooling_is_the_files(made: Made, kind: int, pooling: str) -> None:
    found = read_embedder(resolve_model(str(made({".pooling_type": kind}))))
    assert found is not None and found.pooling == pooling and found.normalize


def test_a_file_that_pools_nothing_is_no_embedder(made: Made) -> None:
    assert read_embedder(resolve_model(str(made({".pooling_type": 0})))) is None


def test_other_poolings_are_refused_by_name(made: Made) -> None:
    file = made({".pooling_type": 4})
    assert f"{file}: qwen2.pooling_type = 4 is not supported, only 0 (none), 1 (mean)" in refusal(file)


# ------------------------------------------------------------------ several templates


def test_conversations_with_tools_have_a_template_of_their_own(made: Made) -> None:
    named = {
        "tokenizer.chat_template": "DEFAULT",
        "tokenizer.chat_template.tool_use": "{{ tools|length }} TOOLS",
        "tokenizer.chat_templates": ["tool_use"],
    }
    both = tokenizer(made(named))
    assert both.chat_text(MESSAGES) == "DEFAULT"
    assert both.chat_text(MESSAGES, tools=TOOLS) == "1 TOOLS"


# ------------------------------------------------------------------ files beside it


@pytest.fixture
def beside(made: Made) -> Path:
    """A file beside which a tokenizer.json lies, as errors advise."""
    file = made({"tokenizer.chat_template": "FILE"})
    (file.parent / "tokenizer.json").write_text((SOURCE / "tokenizer.json").read_text())
    return file


def test_a_tokenizer_beside_it_leaves_the_files_own_template(beside: Path) -> None:
    assert tokenizer(beside).chat_text(MESSAGES) == "FILE"
    (beside.parent / "tokenizer_config.json").write_text('{"eos_token": "<|im_end|>"}')
    assert tokenizer(beside).chat_text(MESSAGES) == "FILE"
    assert tokenizer(beside).special_tokens["eos_token"] == "<|im_end|>"


@pytest.mark.parametrize("name", ["chat_template.jinja", "tokenizer_config.json"])
def test_a_template_beside_it_takes_precedence(beside: Path, name: str) -> None:
    texts = {"chat_template.jinja": "SIDE", "tokenizer_config.json": '{"chat_template": "SIDE"}'}
    (beside.parent / name).write_text(texts[name])
    assert tokenizer(beside).chat_text(MESSAGES) == "SIDE"


def test_special_tokens_beside_it_take_precedence(beside: Path) -> None:
    (beside.parent / "special_tokens_map.json").write_text('{"eos_token": "<|im_end|>"}')
    assert tokenizer(beside).special_tokens["eos_token"] == "<|im_end|>"


def test_files_beside_it_are_read_anew_when_they_change(beside: Path) -> None:
    """Previously the first version was served for as long as the GGUF file stayed the same."""
    template = beside.parent / "chat_template.jinja"
    template.write_text("ONE")
    assert tokenizer(beside).chat_text(MESSAGES) == "ONE"
    template.write_text("LONGER")
    assert tokenizer(beside).chat_text(MESSAGES) == "LONGER"
    before = template.stat().st_mtime_ns
    template.write_text("SAMELY")
    os.utime(template, ns=(before + 1, before + 1))
    assert tokenizer(beside).chat_text(MESSAGES) == "SAMELY"

    stored = json.loads((beside.parent / "tokenizer.json").read_text())
    stored["model"]["merges"] = []
    (beside.parent / "tokenizer.json").write_text(json.dumps(stored))
    assert len(tokenizer(beside).encode("hello world")) == len("hello world")


def test_a_damaged_file_beside_it_is_named(beside: Path) -> None:
    (beside.parent / "tokenizer_config.json").write_text("{")
    assert f"{beside.parent / 'tokenizer_config.json'} cannot be read as JSON" in refusal(beside)
    (beside.parent / "tokenizer_config.json").unlink()
    (beside.parent / "tokenizer.json").write_text("{}")
    with pytest.raises(ModelError, match=f"cannot read the tokenizer in {beside}"):
        tokenizer(beside)
