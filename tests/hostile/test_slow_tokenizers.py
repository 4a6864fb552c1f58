"""Tokenizers whose rules a text makes slow or large: such a text gets 400, and others are served."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from tiny_server import TinyServer, serving

from turnout.core.errors import RequestError
from turnout.models.hub.resolve import resolve_model
from turnout.text.tokenizer import Tokenizer, load_tokenizer

ONE = {"type": "Split", "pattern": {"Regex": r"\s+$"}, "behavior": "Isolated", "invert": False}
"""Of a well-known model: it looks at each run of spaces again from each of them."""
SPACES = " " * 400_000 + "a"
BOMB = {"type": "Replace", "pattern": {"String": "e"}, "content": "e" * 2**20}


def folder_with(folder: Path, **parts: Any) -> Path:
    """The embedded model, whose tokenizer has other parts."""
    made = folder / "model"
    shutil.copytree(resolve_model("turnout-tiny"), made)
    known = json.loads((made / "tokenizer.json").read_text())
    (made / "tokenizer.json").write_text(json.dumps({**known, **parts}))
    return made


@pytest.fixture(scope="module")
def slow(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Its texts are split as the embedded model's are, by an expression that is slow on some."""
    folder = tmp_path_factory.mktemp("slow")
    known = json.loads((resolve_model("turnout-tiny") / "tokenizer.json").read_text())
    parts = {"type": "Sequence", "pretokenizers": [ONE, known["pre_tokenizer"]]}
    return folder_with(folder, pre_tokenizer=parts)


@pytest.fixture(scope="module")
def server(slow: Path) -> Iterator[TinyServer]:
    with serving("--kv-memory", "64MiB", model=str(slow)) as server:
        yield server


def test_a_text_that_is_slow_to_split(server: TinyServer) -> None:
    """A thread was taken for hours, and nothing could end it."""
    with ThreadPoolExecutor(1) as pool:
        hostile = pool.submit(server.post, "/tokenize", {"prompt": SPACES})
        for _ in range(5):
            server.check()
        refused = hostile.result()
    assert refused.status_code == 400
    error = refused.json()["error"]
    assert error["param"] == "prompt" and "takes longer than 2.8 seconds" in error["message"]
    server.check()


def test_other_texts_have_the_same_tokens(slow: Path) -> None:
    plain, split = load_tokenizer(resolve_model("turnout-tiny")), load_tokenizer(slow)
    for text in ("", "def add(a, b):\n    return a + b  ", "é🙂\u0301 <|endoftext|>", "\0", "x" * 5000):
        for special in (False, True):
            ids = split.encode(text, add_special_tokens=special)
            assert ids == plain.encode(text, add_special_tokens=special)
            assert split.decode(ids) == plain.decode(ids)


def test_a_text_that_becomes_too_large(tmp_path: Path) -> None:
    tokenizer: Tokenizer = load_tokenizer(folder_with(tmp_path, normalizer=BOMB))
    with pytest.raises(RequestError, match="takes longer than 2 seconds, or too much memory") as refusal:
        tokenizer.encode("e" * 10_000)
    assert refusal.value.param == "prompt"
    assert tokenizer.encode("abc")


def test_an_expression_that_gives_up(tmp_path: Path) -> None:
    """The library ends a search by a panic."""
    split = {**ONE, "pattern": {"Regex": "(a+)+$"}}
    tokenizer = load_tokenizer(folder_with(tmp_path, pre_tokenizer=split))
    with pytest.raises(RequestError, match=r"this text cannot be tokenized: .*retry-limit"):
        tokenizer.encode("a" * 100 + "b")
