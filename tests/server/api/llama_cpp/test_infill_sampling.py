"""llama.cpp's ways to bias the tokens of ``/infill``, by a model that chooses its tokens itself."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tiny_server import TinyServer

from turnout.models.hub.resolve import resolve_model

END = 0
"""turnout-tiny's end of sequence."""
FIM = ("<fim_prefix>", "<fim_suffix>", "<fim_middle>", "<fim_pad>")
ASKED = {"input_prefix": "def f(x):", "input_suffix": "\n", "n_predict": 4, "temperature": 0}


def write_coder(folder: Path) -> None:
    """turnout-tiny, whose last tokens become StarCoder's."""
    shutil.copytree(resolve_model("turnout-tiny"), folder)
    tokenizer = json.loads((folder / "tokenizer.json").read_text())
    vocabulary, merges = tokenizer["model"]["vocab"], tokenizer["model"]["merges"]
    last = sorted(vocabulary, key=vocabulary.__getitem__)[-len(FIM) :]
    for name, text in zip(FIM, last, strict=True):
        id = vocabulary[name] = vocabulary.pop(text)
        tokenizer["added_tokens"].append({**tokenizer["added_tokens"][0], "id": id, "content": name})
    tokenizer["model"]["merges"] = [merge for merge in merges if "".join(merge) not in last]
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer))


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TinyServer]:
    folder = tmp_path_factory.mktemp("models") / "coder"
    write_coder(folder)
    server = TinyServer(model=str(folder))
    yield server
    server.end()


def infilled(server: TinyServer, **body: Any) -> dict[str, Any]:
    response = server.post("/infill", {**ASKED, **body})
    assert response.status_code == 200, response.text
    found: dict[str, Any] = response.json()
    return found


def token(server: TinyServer, text: str) -> int:
    (id,) = server.post("/tokenize", {"prompt": text}).json()["tokens"]
    return int(id)


def test_a_bias_makes_a_token_come_or_never_come(server: TinyServer) -> None:
    """The biases were ignored."""
    x = token(server, "x")
    for bias in ([[x, 100]], {str(x): 100}, [["x", 100.0]], {"x": 100}, [[x, 1e9]], [[x, 50], ["x", 50]]):
        assert infilled(server, logit_bias=bias)["content"] == "xxxx", bias
    for bias in ([[x, 100], [x, False]], {"x": False}, [["x", -1000]]):
        assert "x" not in infilled(server, logit_bias=bias)["content"], bias
    first = infilled(server)["content"]
    assert infilled(server, logit_bias=[])["content"] == infilled(server, logit_bias={})["content"] == first


def test_a_control_token_that_a_bias_spells_is_plain_text(server: TinyServer) -> None:
    pad = token(server, "<fim_pad>")
    assert infilled(server, logit_bias=[[pad, 100]])["stop_type"] == "eos"
    assert infilled(server, logit_bias=[["<fim_pad>", 100]])["stop_type"] == "limit"


def test_a_text_goes_on_where_its_ends_are_ignored(server: TinyServer) -> None:
    for end in (token(server, "<fim_pad>"), END):
        assert infilled(server, logit_bias=[[end, 100]])["tokens_predicted"] < 4
        answer = infilled(server, logit_bias=[[end, 100]], ignore_eos=True)
        assert (answer["stop_type"], answer["tokens_predicted"]) == ("limit", 4)
        assert answer["content"] == infilled(server, ignore_eos=True)["content"], "none is chosen"
