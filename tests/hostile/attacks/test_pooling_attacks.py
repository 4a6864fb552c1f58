"""Bad requests for embeddings and scores, and engines killed while they compute some, beside a chat."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import psutil
import pytest
from running_server import eventually
from three_models import ThreeModels

pytestmark = pytest.mark.slow
LONG = "word " * 5000
EMBED, RERANK = {"model": "embed"}, {"model": "rerank", "query": "a"}
MESSAGES = [{"role": "user", "content": "a"}]
REFUSED: list[tuple[str, Mapping[str, Any], str]] = [
    ("/v1/embeddings", {**EMBED, "input": ""}, "text 0 is empty"),
    ("/v1/embeddings", {**EMBED, "input": []}, "at least one text"),
    ("/v1/embeddings", {**EMBED, "input": LONG}, "at most 512 are read"),
    ("/v1/embeddings", {**EMBED, "input": [5] * 513}, "takes 512"),
    ("/v1/embeddings", {**EMBED, "input": " ", "add_special_tokens": False}, "no tokens"),
    ("/v1/embeddings", {**EMBED, "input": [[5], [6000]]}, "outside the vocabulary"),
    ("/v1/embeddings", {**EMBED, "input": "a", "dimensions": 129}, "the model's vectors have 128"),
    ("/v1/embeddings", {**EMBED, "messages": MESSAGES}, "no chat template"),
    ("/v1/rerank", {**RERANK, "documents": ["b", LONG]}, "at most 512 are read"),
    ("/v1/rerank", {**RERANK, "documents": ["b"] * 2049}, "at most 2,048 texts"),
    ("/v1/rerank", {**RERANK, "documents": ["b", 5]}, "document 1 is expected to be a string"),
    ("/v1/rerank", {**RERANK, "model": "chat", "documents": ["b"]}, "no classification head"),
    ("/classify", {**EMBED, "input": "a"}, "no classification head"),
    ("/pooling", {"model": "rerank", "input": "a", "task": "classify", "dimensions": 2}, "never cut"),
    ("/v1/chat/completions", {**EMBED, "messages": MESSAGES}, "the model generates no text"),
    ("/v1/responses", {"model": "rerank", "input": "a"}, "the model generates no text"),
    ("/v1/completions", {**EMBED, "prompt": "a"}, "the model generates no text"),
]


@pytest.fixture(scope="module")
def three(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ThreeModels]:
    server = ThreeModels(tmp_path_factory.mktemp("three"))
    try:
        yield server
    finally:
        server.end()


@pytest.mark.parametrize(("path", "body", "why"), REFUSED)
def test_what_is_wrong_is_said(three: ThreeModels, path: str, body: Mapping[str, Any], why: str) -> None:
    refused = three.post(path, body)
    assert refused.status_code == 400 and why in refused.json()["error"]["message"], refused.text


def test_long_texts_are_cut_where_that_is_documented(three: ThreeModels) -> None:
    for path, body in (
        ("/v1/embeddings", {**EMBED, "input": LONG, "truncate_prompt_tokens": -1}),
        ("/api/embed", {**EMBED, "input": LONG}),
        ("/v2/rerank", {**RERANK, "documents": ["b", LONG]}),
        ("/v1/rerank", {**RERANK, "documents": ["b", LONG], "max_tokens_per_doc": 100}),
    ):
        assert three.post(path, body).status_code == 200


def test_a_chat_goes_on_while_others_send_as_much_as_they_can(three: ThreeModels) -> None:
    """Of texts that are refused, and of texts that are cut."""
    done = threading.Event()

    def attack(body: Mapping[str, Any]) -> set[int]:
        found = set()
        while not done.is_set():
            found.add(three.post("/v1/embeddings", {**EMBED, **body}).status_code)
        return found

    bodies: list[dict[str, Any]] = [
        {"input": ["a"] * 10**6},
        {"input": [5] * 10**6},
        {"input": [LONG] * 64, "truncate_prompt_tokens": -1},
    ]
    with ThreadPoolExecutor(len(bodies)) as pool:
        attacks = [pool.submit(attack, body) for body in bodies]
        try:
            for _ in range(10):
                three.check()
        finally:
            done.set()
        statuses = [each.result() for each in attacks]
    assert statuses[0] <= {413, 503} and statuses[1] <= {400, 503} and statuses[2] <= {200, 503}


def test_an_engine_that_is_killed_loses_no_text(three: ThreeModels) -> None:
    """Its requests are answered by the next engine, with the same vectors; chat is not interrupted."""
    texts = [f"{number} " * (number % 100 + 1) for number in range(2000)]
    asked = {**EMBED, "input": texts}
    expected = three.post("/v1/embeddings", asked).json()["data"]
    with ThreadPoolExecutor(8) as pool:
        many = [pool.submit(three.post, "/v1/embeddings", asked, timeout=300) for _ in range(4)]
        time.sleep(0.3)
        _embedding_engine(three).kill()
        assert three.answer() == three.tokens
        answers = [each.result() for each in many]
    for answer in answers:
        assert answer.status_code == 200 and answer.json()["data"] == expected
    replicas = httpx.get(f"{three.url}/admin/replicas", params={"model": "embed"}).json()["replicas"]
    assert sum(each["restarts"] for each in replicas) == 1
    eventually(lambda: httpx.get(f"{three.url}/health").json()["models"]["embed"] == "ok")


def _embedding_engine(three: ThreeModels) -> psutil.Process:
    replicas = httpx.get(f"{three.url}/admin/replicas", params={"model": "embed"}).json()["replicas"]
    return psutil.Process(replicas[0]["pid"])
