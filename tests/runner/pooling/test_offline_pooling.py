"""`LLM.embed`, `.score` and `.classify` of a decoder that generates, too."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from turnout.core.errors import RequestError
from turnout.llm import LLM
from turnout.models.hub.resolve import resolve_model


@pytest.fixture(scope="module")
def llm() -> LLM:
    return LLM("turnout-tiny", pooling="last", kv_memory="64MiB")


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
    folder = tmp_path / "embedder"
    shutil.copytree(resolve_model("turnout-tiny"), folder)
    (folder / "modules.json").write_text('[{"type": "sentence_transformers.Transformer"}]')
    (folder / "config_sentence_transformers.json").write_text(json.dumps({"prompts": {"best": "find: "}}))
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
