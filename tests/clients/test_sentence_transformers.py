"""Folders as sentence-transformers saves them give that library's embeddings and scores."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from environments import packages_beside

import turnout
from turnout.llm import LLM

pytestmark = pytest.mark.slow

HERE = Path(__file__).parent / "sentence_transformers_peer"
TINY = Path(turnout.__file__).parent / "models" / "tiny" / "turnout-tiny"
TEXTS = ["red", "the cat sat on the mat", "a dog " * 20, "no cat", "the mat is red", "dog " * 50, "a b c d e"]
EMBEDDERS = (
    *("bert-mean", "bert-cls", "bert-max", "bert-sqrt"),
    *("qwen3-last", "mistral-last", "llama-weighted", "gemma-both-sides"),
)
CLOSE = 1e-5
Arrays = Mapping[str, np.ndarray[Any, np.dtype[np.float32]]]


def made(folder: Path, name: str) -> Arrays:
    """What the library makes of the texts, with the folder that it writes."""
    path = os.pathsep.join([str(packages_beside(HERE / "requirements.txt")), *sys.path])
    command = [sys.executable, HERE / "worker.py", name, folder, TINY, json.dumps(TEXTS)]
    environment = {**os.environ, "PYTHONPATH": path, "HF_HUB_OFFLINE": "1"}
    ended = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert not ended.returncode, ended.stderr[-3000:]
    with np.load(folder / "expected.npz") as found:
        return dict(found)


def served(folder: Path, **options: Any) -> LLM:
    memory = {} if "bert" in folder.name or "both" in folder.name else {"kv_memory": "64MiB"}
    return LLM(str(folder), dtype="float32", device="cpu", **memory, **options)


@pytest.mark.parametrize("name", EMBEDDERS)
def test_embeddings(tmp_path: Path, name: str) -> None:
    folder = tmp_path / name
    expected = made(folder, name)
    llm = served(folder, max_model_len=150)
    for prompt in ("query", "document", None):
        found = llm.embed(TEXTS, prompt_name=prompt)
        np.testing.assert_allclose(found, expected[prompt or "default"], atol=CLOSE)
        alone = [llm.embed(text, prompt_name=prompt)[0] for text in TEXTS]
        np.testing.assert_allclose(alone, expected[prompt or "default"], atol=CLOSE)
    # The library cuts what is normalized already; here vectors are normalized after the cut.
    cut = expected["cut"] / np.linalg.norm(expected["cut"], axis=-1, keepdims=True)
    found = llm.embed(TEXTS, dimensions=8, normalize=True)
    np.testing.assert_allclose(found, cut, atol=CLOSE)


@pytest.mark.parametrize("name", ["pairs-bert", "pairs-qwen3", "pairs-by-tokens"])
def test_scores_of_pairs(tmp_path: Path, name: str) -> None:
    folder = tmp_path / name
    expected = made(folder, name)
    llm = served(folder, max_model_len=150)
    np.testing.assert_allclose(llm.score(TEXTS[0], TEXTS), expected["scores"], atol=CLOSE)
    if "told" in expected:
        found = llm.score(TEXTS[0], TEXTS, prompt_name="query")
        np.testing.assert_allclose(found, expected["told"], atol=CLOSE)
        assert np.abs(expected["told"] - expected["scores"]).max() > 1e-3
