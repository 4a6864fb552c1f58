"""Embeddings, scores and their kin over HTTP, of a decoder that chats beside."""

from __future__ import annotations

import base64
import json
import shutil
from array import array
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from running_server import eventually
from tiny_server import TinyServer, serving

import turnout

EMBEDDINGS = "/v1/embeddings"
SIZE = 256
LONG = "word " * 5000
TOO_LONG = "at most 2,048 are read|context length"
PAIR = {"query": "a", "documents": ["b"]}
PROMPTS = {"query": "search: ", "other": "find what is like it: ", "document": "text: "}


@pytest.fixture(scope="module")
def server() -> Iterator[TinyServer]:
    server = TinyServer("--pooling", "last", "--max-num-batched-tokens", "64")
    yield server
    server.end()


def post(server: TinyServer, path: str, **body: Any) -> httpx.Response:
    return httpx.post(server.url + path, json=body, timeout=300)


def answer(server: TinyServer, path: str, **body: Any) -> Any:
    response = post(server, path, **body)
    assert response.status_code == 200, response.text
    return response.json()


def vectors(server: TinyServer, **body: Any) -> list[list[float]]:
    found = answer(server, EMBEDDINGS, **body)
    assert [each["index"] for each in found["data"]] == list(range(len(found["data"])))
    return [each["embedding"] for each in found["data"]]


def dot(one: list[float], other: list[float]) -> float:
    return sum(a * b for a, b in zip(one, other, strict=True))


def test_texts_and_tokens_in_every_form(server: TinyServer) -> None:
    text = "def add(a, b):"
    ids = answer(server, "/tokenize", prompt=text)["tokens"]
    (one,) = vectors(server, input=text)
    assert len(one) == SIZE and dot(one, one) == pytest.approx(1, abs=1e-5)
    assert vectors(server, input=[text, "x"])[0] == one
    assert vectors(server, input=ids) == vectors(server, input=[ids]) == [one]
    usage = answer(server, EMBEDDINGS, input=[text, text])["usage"]
    assert usage == {"prompt_tokens": 2 * len(ids), "total_tokens": 2 * len(ids)}


def test_base64_holds_the_same_numbers(server: TinyServer) -> None:
    (one,) = vectors(server, input="one two")
    (coded,) = vectors(server, input="one two", encoding_format="base64")
    numbers = array("f")
    numbers.frombytes(base64.b64decode(coded))  # type: ignore[arg-type]
    assert numbers.tolist() == one


def test_base64_of_each_token_holds_the_same_numbers(server: TinyServer) -> None:
    """As in vLLM, one token's after the other's. They were a list of floats."""
    asked = {"input": ["one two three", "four"], "task": "token_embed"}
    plain = answer(server, "/pooling", **asked)["data"]
    coded = answer(server, "/pooling", **asked, encoding_format="base64")["data"]
    for numbers, text in zip(plain, coded, strict=True):
        flat = array("f", base64.b64decode(text["data"]))
        assert flat.tolist() == [number for token in numbers["data"] for number in token]


def test_embeddings_are_cut_and_normalized_as_asked(server: TinyServer) -> None:
    (raw,) = vectors(server, input="one", normalize=False)
    (cut,) = vectors(server, input="one", dimensions=8)
    length = dot(raw[:8], raw[:8]) ** 0.5
    assert cut == pytest.approx([number / length for number in raw[:8]], abs=1e-6)
    assert dot(raw, raw) != pytest.approx(1, abs=1e-2)
    assert vectors(server, input="one", normalized=False) == [raw], "as Jina calls it"


def test_many_texts_have_the_embeddings_that_each_has_alone(server: TinyServer) -> None:
    texts = [f"number {number} " * (number % 40 + 1) for number in range(64)]
    found = vectors(server, input=texts)
    assert len(found) == 64
    for number in (0, 39, 63):
        assert vectors(server, input=texts[number]) == [found[number]]
    assert server.answer() == server.tokens, "chat goes on as before"


def test_a_conversation_is_embedded_as_its_template_writes_it(server: TinyServer) -> None:
    messages = [{"role": "user", "content": "hello"}]
    ids = answer(server, "/tokenize", messages=messages, add_generation_prompt=False)["tokens"]
    assert vectors(server, messages=messages) == vectors(server, input=ids)


def test_the_pooling_of_a_request(server: TinyServer) -> None:
    found = {
        name: vectors(server, input="one two three", pooling=name)[0] for name in ("last", "mean", "cls")
    }
    assert len({tuple(each) for each in found.values()}) == 3
    (tokens,) = answer(server, "/pooling", input="one two three", task="token_embed")["data"]
    assert len(tokens["data"][0]) == SIZE and tokens["data"][-1] == pytest.approx(found["last"], abs=1e-6)


def test_a_conversation_without_a_template_is_refused(tmp_path: Path) -> None:
    """The error sent the client to /v1/completions."""
    folder = tmp_path / "embedder"
    shutil.copytree(Path(turnout.__file__).parent / "models" / "tiny" / "turnout-tiny", folder)
    (folder / "chat_template.jinja").unlink()
    server = TinyServer("--pooling", "mean", model=str(folder))
    try:
        for path in (EMBEDDINGS, "/pooling"):
            refused = post(server, path, messages=[{"role": "user", "content": "hello"}])
            assert refused.status_code == 400 and refused.json()["error"]["param"] == "messages"
            assert refused.json()["error"]["message"].endswith("cannot embed a conversation; send input")
    finally:
        server.end()


@pytest.mark.parametrize("path", ["/v1/rerank", "/rerank", "/v2/rerank"])
def test_documents_are_ranked(server: TinyServer, path: str) -> None:
    documents: list[Any] = ["import os", {"text": "def f(x):"}, "def f(x): return x"]
    found = answer(server, path, query="def f(x):", documents=documents, top_n=2)
    results = found["results"]
    assert [each["index"] for each in results] == [1, 2]
    assert results[0]["relevance_score"] == pytest.approx(1, abs=1e-5)
    assert results[0].get("document") == (None if path == "/v2/rerank" else {"text": "def f(x):"})
    assert found["meta"]["api_version"] == {"version": "2"} and found["usage"]["total_tokens"] > 0


def test_pairs_are_scored(server: TinyServer) -> None:
    one, other = vectors(server, input=["one", "two"])
    found = answer(server, "/v1/score", text_1="one", text_2=["one", "two"])
    assert [each["score"] for each in found["data"]] == pytest.approx([1, dot(one, other)], abs=1e-5)
    pairs = answer(server, "/score", text_1=["one", "two"], text_2=["two", "one"])["data"]
    assert pairs[0]["score"] == pytest.approx(pairs[1]["score"])


@pytest.mark.slow
def test_queries_have_the_prompt_that_is_named(tmp_path: Path) -> None:
    """It was ignored where embeddings are compared, and so was a name that the model does not have."""
    folder = tmp_path / "embedder"
    shutil.copytree(Path(turnout.__file__).parent / "models" / "tiny" / "turnout-tiny", folder)
    (folder / "modules.json").write_text('[{"type": "sentence_transformers.Transformer"}]')
    (folder / "config_sentence_transformers.json").write_text(json.dumps({"prompts": PROMPTS}))
    server = TinyServer("--pooling", "mean", model=str(folder))
    try:
        (document,) = vectors(server, input="two", prompt_name="document", normalize=True)
        for name in ("query", "other"):
            (query,) = vectors(server, input="one", prompt_name=name, normalize=True)
            assert vectors(server, input="one", task=name, normalize=True) == [query], "as Jina calls it"
            asked = {"prompt_name": name} if name == "other" else {}
            (score,) = answer(server, "/v1/score", text_1="one", text_2="two", **asked)["data"]
            (ranked,) = answer(server, "/v1/rerank", query="one", documents=["two"], **asked)["results"]
            assert score["score"] == ranked["relevance_score"]
            assert score["score"] == pytest.approx(dot(query, document), abs=1e-5)
        refused = post(server, "/v1/rerank", **PAIR, prompt_name="worst").json()["error"]
        assert refused["param"] == "prompt_name" and "known: document, other, query" in refused["message"]
    finally:
        server.end()


@pytest.mark.slow
def test_a_vector_for_each_token_scores_by_max_sim() -> None:
    """The numbers of both texts were multiplied one by one, up to the end of the shorter text's."""
    server = TinyServer("--pooling", "token")
    try:
        (query,), (text,) = (
            answer(server, "/pooling", input=[each])["data"] for each in ("def f(x):", "import os, sys")
        )
        expected = sum(max(dot(token, other) for other in text["data"]) for token in query["data"])
        asked = {"text_1": "def f(x):", "text_2": "import os, sys"}
        for path in ("/v1/score", "/score"):
            (score,) = answer(server, path, **asked)["data"]
            assert score["score"] == pytest.approx(expected, rel=1e-4)
        asked = {"query": "def f(x):", "documents": ["import os, sys", "def f(x):"]}
        for path in ("/v1/rerank", "/rerank"):
            best, other = answer(server, path, **asked)["results"]
            assert best["index"] == 1 and other["relevance_score"] == pytest.approx(expected, rel=1e-4)
    finally:
        server.end()


def test_ollamas_clients(server: TinyServer) -> None:
    (one,) = vectors(server, input="one")
    found = answer(server, "/api/embed", model="turnout-tiny", input=["one", "two"])
    assert found["embeddings"][0] == one and found["prompt_eval_count"] > 1
    assert answer(server, "/api/embeddings", model="turnout-tiny", prompt="one") == {"embedding": one}
    assert answer(server, "/api/embed", model="turnout-tiny", input="")["embeddings"] == []
    long = answer(server, "/api/embed", model="turnout-tiny", input="word " * 5000)
    assert long["prompt_eval_count"] == 2048
    assert (
        post(server, "/api/embed", model="turnout-tiny", input="word " * 5000, truncate=False).status_code
        == 400
    )


def test_a_text_is_cut_where_asked(server: TinyServer) -> None:
    ids = answer(server, "/tokenize", prompt="one two three four")["tokens"]
    assert vectors(server, input="one two three four", truncate_prompt_tokens=2) == vectors(
        server, input=ids[:2]
    )
    cut = {"truncate_prompt_tokens": 2, "truncation_side": "left"}
    for text in ("one two three four", ids):
        assert vectors(server, input=text, **cut) == vectors(server, input=ids[-2:])
    found = answer(server, EMBEDDINGS, input="word " * 5000, truncate_prompt_tokens=-1)
    assert found["usage"]["prompt_tokens"] == 2048


@pytest.mark.parametrize(
    ("path", "body", "param", "message"),
    [
        (EMBEDDINGS, {"input": ""}, "input", "text 0 is empty"),
        (EMBEDDINGS, {"input": ["a", ""]}, "input", "text 1 is empty"),
        (EMBEDDINGS, {"input": []}, "input", "at least one text"),
        (EMBEDDINGS, {}, "input", "either an input or messages"),
        (EMBEDDINGS, {"input": ["a", 1]}, "input", "a list of strings"),
        (EMBEDDINGS, {"input": ["a"] * 2049}, "input", "at most 2,048 texts are expected, not 2,049"),
        (EMBEDDINGS, {"input": ["a"] * 10**5}, "input", "at most 2,048 texts are expected, not 100,000"),
        (EMBEDDINGS, {"input": [10**6]}, "input", "outside the vocabulary"),
        (EMBEDDINGS, {"input": "a", "dimensions": 257}, "dimensions", "the model's vectors have 256"),
        (EMBEDDINGS, {"input": "a", "dimensions": 0}, "dimensions", "a whole number from 1 on"),
        (EMBEDDINGS, {"input": "a", "pooling": "avg"}, "pooling", "known: cls, last, max, mean"),
        (EMBEDDINGS, {"input": "a", "prompt_name": "query"}, "prompt_name", "it has none"),
        (EMBEDDINGS, {"input": "a", "task": "text-matching"}, "task", "it has none"),
        (EMBEDDINGS, {"input": "a", "truncation_side": "both"}, "truncation_side", "'left' or 'right'"),
        (EMBEDDINGS, {"input": "a", "encoding_format": "hex"}, "encoding_format", "'float' or 'base64'"),
        (EMBEDDINGS, {"input": "word " * 5000}, "input", "at most 2,048 are read|context length"),
        ("/classify", {"input": "a"}, "model", "no classification head"),
        ("/classify", {"input": "a", "activation": False}, "activation", "this server has use_activation"),
        ("/classify", {"input": "a", "softmax": False}, "softmax", "this server has use_activation"),
        ("/classify", {"input": "a", "dimensions": 4}, "dimensions", "not supported"),
        ("/rerank", {**PAIR, "raw_scores": True}, "raw_scores", "this server has use_activation"),
        ("/v1/rerank", {"query": "a", "documents": []}, "documents", "at least one text"),
        ("/v1/rerank", {"query": "", "documents": ["a"]}, "query", "the query is empty"),
        ("/v1/rerank", {"query": "a", "documents": ["a", ""]}, "documents", "text 1 is empty"),
        ("/v1/rerank", {"query": LONG, "documents": ["a"]}, "query", TOO_LONG),
        ("/v1/rerank", {"query": "a", "documents": [LONG]}, "documents", TOO_LONG),
        ("/v2/rerank", {**PAIR, "prompt_name": "query"}, "prompt_name", "it has none"),
        ("/rerank", {**PAIR, "instruction": "find"}, "instruction", "an embedder takes no instruction"),
        ("/v1/score", {"text_1": LONG, "text_2": ["a"]}, "text_1", TOO_LONG),
        ("/v1/score", {"text_1": "a", "text_2": ["b", LONG]}, "text_2", TOO_LONG),
        ("/v1/score", {"text_1": "a", "text_2": "b", "prompt_name": "q"}, "prompt_name", "it has none"),
        ("/v1/score", {"text_1": "a", "text_2": "b", "instruction": "find"}, "instruction", "prompt_name"),
        ("/v1/score", {"text_1": "", "text_2": ["a"]}, "text_1", "text 0 is empty"),
        ("/v1/score", {"text_1": "a", "text_2": ["a", ""]}, "text_2", "text 1 is empty"),
        ("/v1/score", {"text_1": ["a", "b"], "text_2": ["a"]}, "text_1", "2 texts and text_2 has 1"),
    ],
)
def test_what_is_wrong_is_said(
    server: TinyServer, path: str, body: dict[str, Any], param: str, message: str
) -> None:
    response = post(server, path, **body)
    error = response.json()["error"]
    assert response.status_code == 400 and error["param"] == param, error
    assert any(part in error["message"] for part in message.split("|")), error


@pytest.mark.parametrize("text", ["a b " * 2000, LONG * 40, [65] * 2049])
def test_a_text_too_long_is_named_with_what_cuts_it(server: TinyServer, text: Any) -> None:
    """The error named neither the text nor truncate_prompt_tokens."""
    for path in (EMBEDDINGS, "/pooling"):
        error = post(server, path, input=["a", text, "b"]).json()["error"]
        assert "text 1 has " in error["message"] and error["param"] == "input", error
        assert error["message"].endswith("or set truncate_prompt_tokens"), error
        error = post(server, path, input=text).json()["error"]
        assert "the text has " in error["message"] or "the prompt has " in error["message"], error


def test_a_text_too_long_is_named_by_its_place_in_the_request(server: TinyServer) -> None:
    """Texts that are the same are embedded once."""
    for path, field, one in (("/v1/rerank", "documents", "query"), ("/v1/score", "text_2", "text_1")):
        error = post(server, path, **{one: "a", field: ["b", "b", LONG]}).json()["error"]
        assert error["message"].startswith("text 2 has ") and error["param"] == field, error
    error = post(server, "/api/embed", input=["a", LONG], truncate=False).json()["error"]
    assert error.startswith("text 1 has ") and error.endswith("or set truncate"), error


def test_a_million_texts_are_refused_before_they_are_read(server: TinyServer) -> None:
    refused = post(server, EMBEDDINGS, input=["a"] * 10**6)
    assert refused.status_code == 413
    assert "in several requests, of texts to embed or rank at most 2,048 in each" in refused.text


def test_texts_and_tokens_are_counted_by_endpoint(server: TinyServer) -> None:
    answer(server, "/v1/score", text_1="one", text_2="two")
    metrics = httpx.get(server.url + "/metrics").text
    assert 'turnout:pooled_requests_total{endpoint="/v1/score",model_name="turnout-tiny"}' in metrics
    assert 'turnout:pooled_texts_total{endpoint="/v1/score",model_name="turnout-tiny"}' in metrics
    assert 'turnout:pooled_tokens_total{endpoint="/v1/embeddings"' in metrics or EMBEDDINGS not in metrics


@pytest.mark.slow
def test_all_texts_of_a_pair_count_for_a_key(tmp_path: Path) -> None:
    """Those that were embedded first did not: neither for its limits nor in the log."""
    keys = tmp_path / "keys.yaml"
    keys.write_text(json.dumps([{"name": "one", "key": "one-key"}]))

    def spent() -> float:
        lines = httpx.get(server.url + "/metrics").text.splitlines()
        return next(float(line.split()[-1]) for line in lines if line.startswith("turnout:key_tokens_total"))

    with serving("--pooling", "last", "--api-key-file", str(keys), key="one-key") as server:
        before = spent()
        body = {"text_1": ["one two three four five", "six seven eight"], "text_2": ["one", "two"]}
        response = server.post("/v1/score", body)
        assert response.status_code == 200, response.text
        tokens = response.json()["usage"]["total_tokens"]
        assert spent() - before == tokens
        eventually(lambda: f"prompt_tokens={tokens} " in server.text())
