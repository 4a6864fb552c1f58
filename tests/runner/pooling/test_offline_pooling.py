"""`LLM.embed`, `.score` and `.classify` of a decoder that generates, too."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from three_models import write_models

from turnout.core.errors import RequestError
from turnout.llm import LLM
from turnout.models.hub.resolve import resolve_model


@pytest.fixture(scope="module")
def llm() -> LLM:
    return LLM("turnout-tiny", pooling="last", kv_memory="64MiB")


def embedder(tmp_path: Path, **settings: object) -> Path:
    """A folder of sentence-transformers."""
    folder = tmp_path / "embedder"
    shutil.copytree(resolve_model("turnout-tiny"), folder)
    (folder / "modules.json").write_text('[{"type": "sentence_transformers.Transformer"}]')
    (folder / "config_sentence_transformers.json").write_text(json.dumps(settings))
    return folder


def test_texts_and_tokens_have_the_same_embedding(llm: LLM) -> None:
    one, other = llm.embed(["def f(x):", llm.tokenizer.encode("def f(x):")])
    assert np.array_equal(one, other) and np.linalg.norm(one) == pytest.approx(1, abs=1e-5)
    (cut,) = llm.embed("def f(x):", dimensions=4)
    assert cut == pytest.approx(one[:4] / np.linalg.norm(one[:4]), abs=1e-6)
    (tokens,) = llm.embed("def f(x):", pooling="token")
    assert tokens.ndim == 2 and np.allclose(tokens[-1], one, atol=1e-6)


def test_an_embedder_scores_by_similarity(llm: LLM) -> None:
    same, other = llm.score("one", ["one", "two"])
    assert same == pytest.approx(1, abs=1e-5) and other < same
    assert llm.score("one", "two") == [other]


def test_queries_have_the_prompt_that_is_named(tmp_path: Path) -> None:
    """It was ignored where embeddings are compared."""
    folder = embedder(tmp_path, prompts={"best": "find: "})
    llm = LLM(str(folder), pooling="last", kv_memory="64MiB")
    one, other = llm.embed(["find: one", "two"], normalize=True)
    assert llm.score("one", "two", prompt_name="best") == pytest.approx([float(one @ other)], abs=1e-5)
    assert llm.score("one", "two") != llm.score("one", "two", prompt_name="best")
    with pytest.raises(RequestError, match="known: best"):
        llm.score("one", "two", prompt_name="worst")


def test_what_it_cannot_do_is_refused(llm: LLM) -> None:
    with pytest.raises(RequestError, match="no classification head"):
        llm.classify("one")
    with pytest.raises(RequestError, match="it has none"):
        llm.embed("one", prompt_name="query")
    with pytest.raises(RequestError, match=r"at most 2,048 are read|context length"):
        llm.embed("word " * 5000)


def test_texts_to_score_may_come_from_a_generator(llm: LLM) -> None:
    """It was a TypeError."""
    assert llm.score("one", (text for text in ("one", "two"))) == llm.score("one", ["one", "two"])


def test_a_vector_for_each_token_scores_by_max_sim() -> None:
    """numpy said that the shapes of the two texts do not go together."""
    llm = LLM("turnout-tiny", pooling="token", kv_memory="64MiB")
    query, text = llm.embed(["def f(x):", "import os, sys"])
    expected = float((query @ text.T).max(axis=1).sum())
    assert llm.score("def f(x):", "import os, sys") == pytest.approx([expected], rel=1e-4)


def test_vectors_are_cut_as_the_folder_says_unless_a_request_does(tmp_path: Path) -> None:
    """They were whole. As in sentence-transformers, the cut follows the norm, unless one is asked for."""
    folder = embedder(tmp_path, truncate_dim=8)
    llm = LLM(str(folder), pooling="last", kv_memory="64MiB")
    (whole,) = llm.embed("one", dimensions=256, normalize=False)
    (kept,), (unit,) = llm.embed("one"), llm.embed("one", normalize=True)
    assert kept == pytest.approx(whole[:8], abs=1e-6)
    assert unit == pytest.approx(whole[:8] / np.linalg.norm(whole[:8]), abs=1e-6)
    assert llm.embed("one", dimensions=4)[0].shape == (4,)
    other = llm.embed("two")[0]
    cosine = float(kept @ other / (np.linalg.norm(kept) * np.linalg.norm(other)))
    assert llm.score("one", "two") == pytest.approx([cosine], abs=1e-5)


def test_long_texts_are_cut_where_asked(llm: LLM) -> None:
    """No argument cut them."""
    ids = llm.tokenizer.encode("one two three four")
    (one,) = llm.embed("one two three four", truncate_prompt_tokens=2)
    assert np.array_equal(one, llm.embed([ids[:2]])[0])
    assert np.array_equal(one, llm.embed([ids], truncate_prompt_tokens=2)[0])
    long = "word " * 5000
    llm.embed(long, truncate_prompt_tokens=-1)
    assert len(llm.score("one", [long, "two"], truncate_prompt_tokens=-1)) == 2
    for wrong in (0, -2, True):
        with pytest.raises(RequestError, match="truncate_prompt_tokens is"):
            llm.embed("one", truncate_prompt_tokens=wrong)


@pytest.mark.parametrize("many", [2, 16])
def test_a_text_too_long_is_named_with_what_cuts_it(llm: LLM, many: int) -> None:
    """The error told nothing of which it is."""
    for long in ("word " * 5000, [65] * 5000):
        texts: list[str | list[int]] = ["one"] * many
        texts[1] = long
        with pytest.raises(RequestError, match=r"\btext 1 has .* set truncate_prompt_tokens$"):
            llm.embed(texts)
    with pytest.raises(RequestError, match=r"\btext 1 has .* set truncate_prompt_tokens$"):
        llm.score("one", ["two", "word " * 5000])
    with pytest.raises(RequestError, match=r"\bthe text has "):
        llm.embed("word " * 5000)


def test_a_conversation_with_an_encoder_is_refused(tmp_path: Path) -> None:
    """The error recommended /v1/completions."""
    llm = LLM(str(write_models(tmp_path)[0]))
    with pytest.raises(RequestError, match=r"^the model generates no text"):
        llm.chat([{"role": "user", "content": "hello"}])
