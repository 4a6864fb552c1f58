"""Rerankers and classifiers over HTTP."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import torch
from tiny_server import TinyServer

import turnout

TINY = Path(turnout.__file__).parent / "models" / "tiny" / "turnout-tiny"
TEMPLATE = """{% set told = messages | selectattr("role", "eq", "system") | map(attribute="content") | first
 | default("rank") %}{{ told }}
{{ messages | selectattr("role", "eq", "query") | map(attribute="content") | first }}: {{ messages
 | selectattr("role", "eq", "document") | map(attribute="content") | first }}"""
YES, NO = 300, 301
DOCUMENTS = ["def f(x): return x", "import os", "class A: pass"]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TinyServer]:
    """Of `turnout-tiny`, whose logits of two tokens score pairs."""
    folder = tmp_path_factory.mktemp("reranker") / "reranker"
    shutil.copytree(TINY, folder)
    (folder / "chat_template.jinja").write_text(TEMPLATE)
    kinds = (("Transformer", ""), ("LogitScore", "1_LogitScore"))
    modules = [{"path": path, "type": f"sentence_transformers.{kind}"} for kind, path in kinds]
    (folder / "modules.json").write_text(json.dumps(modules))
    (folder / "1_LogitScore").mkdir()
    tokens = {"true_token_id": YES, "false_token_id": NO}
    (folder / "1_LogitScore" / "config.json").write_text(json.dumps(tokens))
    prompts = {"prompts": {"best": "find the best"}}
    (folder / "config_sentence_transformers.json").write_text(json.dumps(prompts))
    server = TinyServer(model=str(folder))
    yield server
    server.end()


def answer(server: TinyServer, path: str, **body: Any) -> Any:
    response = httpx.post(server.url + path, json=body, timeout=300)
    assert response.status_code == 200, response.text
    return response.json()


def test_documents_are_ranked_by_the_logits_of_yes_and_no(server: TinyServer) -> None:
    results = answer(server, "/v1/rerank", query="what is f?", documents=DOCUMENTS)["results"]
    scores = [each["relevance_score"] for each in results]
    assert scores == sorted(scores, reverse=True) and len(set(scores)) == 3
    by_pair = answer(server, "/v1/score", text_1="what is f?", text_2=DOCUMENTS)["data"]
    for each in results:
        assert by_pair[each["index"]]["score"] == each["relevance_score"]


def test_scores_are_logits_where_asked(server: TinyServer) -> None:
    """/v1/rerank ignored use_activation."""
    asked = {"query": "what is f?", "documents": DOCUMENTS}
    plain = {each["index"]: each["relevance_score"] for each in answer(server, "/rerank", **asked)["results"]}
    for each in answer(server, "/v1/rerank", **asked, use_activation=False)["results"]:
        logit = torch.tensor(each["relevance_score"])
        assert plain[each["index"]] == pytest.approx(float(logit.sigmoid()), abs=1e-6)


def test_an_instruction_is_given_or_named(server: TinyServer) -> None:
    def scores(**more: str) -> list[float]:
        found = answer(server, "/v1/score", text_1="what is f?", text_2=DOCUMENTS, **more)
        return [each["score"] for each in found["data"]]

    assert scores(instruction="find the best") == scores(prompt_name="best") != scores()
    assert scores(instruction="rank") == scores()
    wrong = {"text_1": "a", "text_2": "b", "prompt_name": "worst"}
    refused = httpx.post(f"{server.url}/v1/score", json=wrong, timeout=300)
    assert refused.status_code == 400 and refused.json()["error"]["param"] == "prompt_name"


def test_a_long_document_is_cut_before_the_templates_end(server: TinyServer) -> None:
    long = "word " * 5000
    refused = httpx.post(f"{server.url}/rerank", json={"query": "a", "documents": [long]}, timeout=300)
    assert refused.status_code == 400 and refused.json()["error"]["param"] == "documents"
    usage = answer(server, "/v2/rerank", query="a", documents=[long], max_tokens_per_doc=20)["usage"]
    assert usage["total_tokens"] < 40


@pytest.mark.slow
def test_a_classifier(tmp_path: Path) -> None:
    from transformers import AutoConfig, AutoModelForSequenceClassification, AutoTokenizer

    shape = {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 96}
    shape |= {"num_key_value_heads": 2}
    labels = {0: "bad", 1: "so so", 2: "good"}
    config = AutoConfig.for_model("qwen3", vocab_size=4096, id2label=labels, **shape)
    torch.manual_seed(0)
    model = AutoModelForSequenceClassification.from_config(config).eval()
    model.save_pretrained(tmp_path)
    tokenizer = AutoTokenizer.from_pretrained(TINY)
    tokenizer.save_pretrained(tmp_path)
    flags = ("--kv-memory", "64MiB", "--max-model-len", "512")
    server = TinyServer(*flags, model=str(tmp_path), generates=False)
    try:
        found = answer(server, "/classify", input=DOCUMENTS)["data"]
        for text, each in zip(DOCUMENTS, found, strict=True):
            with torch.inference_mode():
                probs = model(**tokenizer(text, return_tensors="pt")).logits[0].softmax(-1)
            assert each["probs"] == pytest.approx(probs.tolist(), abs=1e-5)
            assert each["label"] == labels[int(probs.argmax())]
        for path, body, words in (
            ("/v1/completions", {"prompt": "a", "max_tokens": 1}, "generates no text"),
            ("/v1/score", {"text_1": "a", "text_2": "b"}, "gives 3 scores"),
        ):
            refused = httpx.post(server.url + path, json=body, timeout=300)
            assert refused.status_code == 400 and words in refused.json()["error"]["message"]
    finally:
        server.end()
