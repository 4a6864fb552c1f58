"""Encoders over HTTP: an embedder, a cross-encoder and a classifier give transformers' numbers."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import httpx
import pytest
import torch
from three_models import write, write_models
from tiny_server import TinyServer
from transformers import (
    AutoModel,
    AutoModelForSequenceClassification,
    AutoTokenizer,
    ModernBertConfig,
    ModernBertForSequenceClassification,
    PreTrainedModel,
)

pytestmark = pytest.mark.slow

QUERY = "how is a replica drained?"
TEXTS = ["drain a replica", "blocks of keys and values", "the scheduler plans a step " * 8, "a"]
LONG = "word " * 5000
MESSAGES = [{"role": "user", "content": "a"}]
LABELS = {0: "question", 1: "answer", 2: "neither"}
CLASSIFIER = {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 96}


class Encoders(TinyServer):
    """Three encoders behind one port, and what transformers reads of their folders."""

    def __init__(self, folder: Path) -> None:
        embed, rerank = write_models(folder)
        inputs = ["input_ids", "token_type_ids", "attention_mask"]
        self.tokenizer: Any = AutoTokenizer.from_pretrained(embed, model_input_names=inputs)
        shape = {**CLASSIFIER, "vocab_size": len(self.tokenizer), "id2label": LABELS}
        ends = dict.fromkeys(("pad_token_id", "bos_token_id", "eos_token_id", "cls_token_id"), 0)
        torch.manual_seed(1)
        config = ModernBertConfig(**shape, **ends, max_position_embeddings=512, classifier_pooling="mean")
        classes = write(folder / "classes", ModernBertForSequenceClassification(config), self.tokenizer)
        heads = {"rerank": rerank, "classes": classes}
        self.body: PreTrainedModel = AutoModel.from_pretrained(embed).eval()
        self.heads: Mapping[str, PreTrainedModel] = {
            name: AutoModelForSequenceClassification.from_pretrained(at).eval() for name, at in heads.items()
        }
        short = shutil.copytree(embed, folder / "short")
        (short / "sentence_bert_config.json").write_text('{"max_seq_length": 64}')
        degree = shutil.copytree(rerank, folder / "degree")
        regression = {**json.loads((degree / "config.json").read_text()), "problem_type": "regression"}
        (degree / "config.json").write_text(json.dumps(regression))
        others = [f"{name}={at}" for name, at in {**heads, "short": short, "degree": degree}.items()]
        super().__init__(*others, model=f"embed={embed}", generates=False)

    def ask(self, path: str, **body: Any) -> Any:
        response = self.post(path, body)
        assert response.status_code == 200, response.text
        return response.json()

    @torch.inference_mode()
    def states(self, text: str) -> torch.Tensor:
        """The embedder's hidden states, [tokens, size]."""
        states: torch.Tensor = self.body(**self.tokenizer(text, return_tensors="pt")).last_hidden_state[0]
        return states

    @torch.inference_mode()
    def logits(self, name: str, *texts: str) -> torch.Tensor:
        """What the head of a model says of a text, or of a pair."""
        read = self.tokenizer(*texts, return_tensors="pt")
        if name == "classes":
            del read["token_type_ids"]
        logits: torch.Tensor = self.heads[name](**read).logits[0]
        return logits

    def relevance(self) -> list[float]:
        return [float(self.logits("rerank", QUERY, text).sigmoid()) for text in TEXTS]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Encoders]:
    server = Encoders(tmp_path_factory.mktemp("encoders"))
    try:
        yield server
    finally:
        server.end()


def near(numbers: Any) -> Any:
    return pytest.approx(numbers, abs=1e-5)


def test_an_embedder_embeds(server: Encoders) -> None:
    means = [torch.nn.functional.normalize(server.states(text).mean(0), dim=0) for text in TEXTS]
    for path in ("/v1/embeddings", "/api/embed"):
        found = server.ask(path, model="embed", input=TEXTS)
        vectors = found["embeddings"] if "embeddings" in found else [e["embedding"] for e in found["data"]]
        for vector, mean in zip(vectors, means, strict=True):
            assert vector == near(mean.tolist())
    scores = server.ask("/v1/score", model="embed", text_1=TEXTS[0], text_2=TEXTS)["data"]
    assert [each["score"] for each in scores] == near([float(means[0] @ mean) for mean in means])


def test_an_embedder_shows_its_tokens(server: Encoders) -> None:
    found = server.ask("/pooling", model="embed", input=TEXTS, task="token_embed")["data"]
    for each, text in zip(found, TEXTS, strict=True):
        states = torch.nn.functional.normalize(server.states(text), dim=-1)
        assert len(each["data"]) == len(states)
        torch.testing.assert_close(torch.tensor(each["data"]), states, atol=1e-5, rtol=0)


@pytest.mark.parametrize("path", ["/rerank", "/v1/rerank", "/v2/rerank"])
def test_a_cross_encoder_ranks(server: Encoders, path: str) -> None:
    expected = server.relevance()
    found = server.ask(path, model="rerank", query=QUERY, documents=TEXTS)["results"]
    assert [each["index"] for each in found] == sorted(range(4), key=lambda at: -expected[at])
    for each in found:
        assert each["relevance_score"] == near(expected[each["index"]])


@pytest.mark.parametrize("path", ["/score", "/v1/score"])
def test_a_cross_encoder_scores(server: Encoders, path: str) -> None:
    found = server.ask(path, model="rerank", text_1=QUERY, text_2=TEXTS)["data"]
    assert [each["score"] for each in found] == near(server.relevance())


def test_a_cross_encoder_says_a_text_has_one_class(server: Encoders) -> None:
    (found,) = server.ask("/classify", model="rerank", input=TEXTS[0])["data"]
    assert found["probs"] == near([float(server.logits("rerank", TEXTS[0]).sigmoid())])


def test_a_regression_has_no_activation_but_that_of_pairs(server: Encoders) -> None:
    """As in transformers and sentence-transformers; a text's had a sigmoid."""
    (found,) = server.ask("/classify", model="degree", input=TEXTS[0])["data"]
    assert found["probs"] == near([float(server.logits("rerank", TEXTS[0]))])
    found = server.ask("/v1/score", model="degree", text_1=QUERY, text_2=TEXTS)["data"]
    assert [each["score"] for each in found] == near(server.relevance())


@pytest.mark.parametrize("path", ["/classify", "/pooling"])
def test_a_classifier_classifies(server: Encoders, path: str) -> None:
    task = {"task": "classify"} if path == "/pooling" else {}
    found = server.ask(path, model="classes", input=TEXTS, **task)["data"]
    for each, text in zip(found, TEXTS, strict=True):
        probs = server.logits("classes", text).softmax(-1)
        assert each["data" if task else "probs"] == near(probs.tolist())
        assert task or each["label"] == LABELS[int(probs.argmax())]


@pytest.mark.parametrize(
    ("path", "body", "message"),
    [
        ("/classify", {"model": "embed", "input": "a"}, "no classification head"),
        ("/pooling", {"model": "embed", "input": "a", "task": "classify"}, "no classification head"),
        ("/v1/rerank", {"model": "classes", "query": "a", "documents": ["b"]}, "gives 3 scores"),
        ("/v1/score", {"model": "classes", "text_1": "a", "text_2": "b"}, "gives 3 scores"),
        ("/v1/completions", {"model": "rerank", "prompt": "a"}, "the model generates no text"),
        ("/infill", {"model": "embed", "input_prefix": "a"}, "the model generates no text"),
        ("/v1/completions", {"model": "embed", "prompt": "a", "suffix": "b"}, "the model generates no text"),
        (
            "/v1/embeddings",
            {"model": "embed", "messages": MESSAGES},
            "cannot embed a conversation; send input",
        ),
        ("/v1/rerank", {"model": "rerank", "query": "a", "documents": ["b", LONG]}, "pair 1 has "),
        ("/tokenize", {"model": "embed", "messages": MESSAGES}, "no chat template, so it reads no conv"),
        ("/v1/embeddings", {"model": "short", "input": "a " * 100}, "at most 64 are read"),
        ("/v1/embeddings", {"model": "embed", "input": "a", "truncate_prompt_tokens": 2}, "at least 3 is"),
        ("/v1/embeddings", {"model": "embed", "input": "a", "dimensions": 129}, "vectors have 128"),
        ("/v1/embeddings", {"model": "embed", "input": ["a", ""]}, "text 1 is empty"),
        ("/v1/embeddings", {"model": "embed", "input": LONG}, "at most 512 are read"),
        ("/classify", {"model": "classes", "input": ""}, "text 0 is empty"),
        ("/classify", {"model": "classes", "input": LONG}, "at most 512 are read"),
        ("/classify", {"model": "classes", "input": ["a"] * 2049}, "at most 2,048 texts"),
        ("/v1/score", {"model": "rerank", "text_1": "", "text_2": "b"}, "text 0 is empty"),
        ("/v1/rerank", {"model": "rerank", "query": "a", "documents": [LONG]}, "at most 512 are read"),
    ],
)
def test_what_is_wrong_is_said(server: Encoders, path: str, body: dict[str, Any], message: str) -> None:
    response = server.post(path, body)
    assert response.status_code == 400 and message in response.json()["error"]["message"], response.text


@pytest.mark.parametrize("path", ["/v1/embeddings", "/classify", "/pooling", "/v1/score", "/v1/rerank"])
def test_a_million_texts_are_refused(server: Encoders, path: str) -> None:
    many = ["a"] * 10**6
    names = {"/v1/score": {"text_1": "a", "text_2": many}, "/v1/rerank": {"query": "a", "documents": many}}
    model = {"/v1/embeddings": "embed", "/pooling": "embed", "/classify": "classes"}.get(path, "rerank")
    refused = server.post(path, {"model": model, **names.get(path, {"input": many})})
    assert refused.status_code == 413 and "at most 2,048 in each" in refused.text


def test_long_texts_are_cut_where_asked(server: Encoders) -> None:
    whole = {"truncate_prompt_tokens": -1}
    found = server.ask("/v1/embeddings", model="embed", input=LONG, **whole)
    assert found["usage"]["prompt_tokens"] == 512
    assert server.ask("/classify", model="classes", input=LONG, **whole)["usage"]["prompt_tokens"] == 512
    found = server.ask("/v1/rerank", model="rerank", query="a", documents=[LONG], **whole)
    assert found["usage"]["total_tokens"] == 512
    assert httpx.get(f"{server.url}/health").status_code == 200


def test_the_limit_that_is_told_is_the_folders(server: Encoders) -> None:
    """It was the model's, and of token ids as many were read."""
    cards = httpx.get(f"{server.url}/v1/models").json()["data"]
    assert {card["id"]: card["max_model_len"] for card in cards}["short"] == 64
    assert server.ask("/tokenize", model="short", prompt="a")["max_model_len"] == 64
    assert server.ask("/api/show", model="short")["model_info"]["bert.context_length"] == 64
    refused = server.post("/v1/embeddings", {"model": "short", "input": [7] * 65})
    assert refused.status_code == 400 and "has 65 tokens, but the model takes 64" in refused.text
