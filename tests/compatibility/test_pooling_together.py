"""Embeddings with every feature of an engine, and with what a server does: each "yes" of the table."""

from __future__ import annotations

import json
import signal
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import openai
import pytest
from features import FEATURES, Feature
from running_server import eventually
from three_models import ThreeModels, write_models
from tiny_server import PROMPT, TinyServer, serving

from turnout import LLM, SamplingParams
from turnout.core.types.pooling import PoolingParams
from turnout.core.types.request import RequestSpec

MakeLLM = Callable[[Mapping[str, Any]], LLM]
TEXTS = [
    "def add(a, b):\n    return a + b",
    "x",
    "import os\nimport sys\n\nfor name in os.listdir():",
    "while True:\n    try:\n",
]
POOLINGS = ("last", "mean")
OF_ENGINES = [feature for feature in FEATURES if feature.engine]


def embedded_beside_chat(llm: LLM) -> list[np.ndarray]:
    """The vectors of all texts by each pooling, computed in the same steps as answers."""
    engine, ids = llm.engine, [llm.tokenizer.encode(text) for text in TEXTS]
    generating = SamplingParams(temperature=0, max_tokens=12, ignore_eos=True)
    engine.add(RequestSpec(id="chat", prompt=ids[0], params=generating, seed=0))
    for pooling in POOLINGS:
        for number, prompt in enumerate(ids):
            params = PoolingParams(pooling=pooling)
            id = f"{pooling} {number}"
            engine.add(RequestSpec(id=id, prompt=prompt, params=SamplingParams(), seed=0, pooling=params))
    found: dict[str, np.ndarray] = {}
    while engine.busy:
        for delta in engine.step():
            assert not delta.error, delta.error
            if delta.pooled is not None:
                found[delta.request_id] = np.frombuffer(delta.pooled.data, "<f4")
    return [found[f"{pooling} {number}"] for pooling in POOLINGS for number in range(len(TEXTS))]


@pytest.mark.parametrize("feature", OF_ENGINES, ids=lambda feature: feature.name)
def test_a_decoder_embeds_with_every_feature(
    make_llm: MakeLLM, make_plain: MakeLLM, feature: Feature
) -> None:
    expected = embedded_beside_chat(make_plain(feature.engine))
    for vector, plain in zip(embedded_beside_chat(make_llm(feature.engine)), expected, strict=True):
        assert vector @ plain > (1 - 1e-5 if feature.exact else 0.99)


FLAGS: dict[str, tuple[str, ...]] = {
    "replicas": ("--replicas", "2"),
    "ab": ("--ab", "other:scheduler=ljf,kv=contiguous", "--split", "0.5"),
    "prefix caching": ("--kv", "paged:prefix_caching=true"),
}


@pytest.fixture(scope="module")
def expected() -> list[list[float]]:
    with serving("--pooling", "last") as server:
        return vectors(server)


def vectors(server: TinyServer) -> list[list[float]]:
    found = server.post("/v1/embeddings", {"input": TEXTS, "user": threading.current_thread().name})
    assert found.status_code == 200, found.text
    return [each["embedding"] for each in found.json()["data"]]


def check_same(server: TinyServer, expected: list[list[float]]) -> None:
    for vector, other in zip(vectors(server), expected, strict=True):
        assert vector == pytest.approx(other, abs=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("what", FLAGS)
def test_a_server_embeds_with_it(what: str, expected: list[list[float]]) -> None:
    with serving("--pooling", "last", *FLAGS[what]) as server, ThreadPoolExecutor(4) as pool:
        chats = [pool.submit(server.post, "/v1/completions", PROMPT | {"user": str(at)}) for at in range(8)]
        for each in [pool.submit(check_same, server, expected) for _ in range(8)]:
            each.result()
        assert {chat.result().json()["choices"][0]["text"] for chat in chats} == {server.tokens}
        server.check()


@pytest.mark.slow
def test_texts_of_an_engine_that_dies_are_embedded_by_the_next(expected: list[list[float]]) -> None:
    asked: dict[str, Any] = {"input": TEXTS * 200}
    with serving("--pooling", "last") as server, ThreadPoolExecutor(1) as pool:
        answer = pool.submit(server.post, "/v1/embeddings", asked, timeout=300)
        (engine,) = [each for each in server.process.children() if "engine.main" in " ".join(each.cmdline())]
        engine.send_signal(signal.SIGKILL)
        found = [each["embedding"] for each in answer.result().json()["data"]]
        for number in range(0, len(found), 97):
            assert found[number] == pytest.approx(expected[number % len(TEXTS)], abs=1e-5)
        check_same(server, expected)


# ------------------------------------------------------------------ encoders, and several models


@pytest.mark.slow
def test_several_models_have_replicas_and_batches(tmp_path: Path) -> None:
    """A batch of embeddings by an encoder of two engines, beside a chat."""
    server = ThreeModels(tmp_path, "--replicas", "2", "--batch-dir", str(tmp_path / "batches"))
    try:
        asked = {"model": "embed", "input": TEXTS}
        alone = server.post("/v1/embeddings", asked).json()["data"]
        lines = [
            {"custom_id": str(at), "method": "POST", "url": "/v1/embeddings", "body": asked}
            for at in range(6)
        ]
        with openai.OpenAI(base_url=f"{server.url}/v1", api_key="none") as client:
            content = "\n".join(map(json.dumps, lines)).encode()
            file = client.files.create(file=("in.jsonl", content), purpose="batch")
            batch = client.batches.create(
                input_file_id=file.id, endpoint="/v1/embeddings", completion_window="24h"
            )
            assert server.answer() == server.tokens
            eventually(lambda: client.batches.retrieve(batch.id).status == "completed", 60)
            done = client.batches.retrieve(batch.id)
            answers = client.files.content(done.output_file_id or "").text.splitlines()
        assert [json.loads(answer)["response"]["body"]["data"] for answer in answers] == [alone] * 6
        server.check()
    finally:
        server.end()


class EncoderServer(TinyServer):
    """Its own request is for embeddings."""

    def answer(self) -> str:
        return str(vectors(self))


@pytest.mark.slow
def test_an_encoder_has_two_arms(tmp_path: Path) -> None:
    embed, _ = write_models(tmp_path)
    server = EncoderServer("--ab", "other:scheduler=ljf", "--split", "0.5", model=str(embed))
    try:
        with ThreadPoolExecutor(4) as pool:
            found = [pool.submit(vectors, server) for _ in range(16)]
            assert len({str(each.result()) for each in found}) == 1
        server.check()
    finally:
        server.end()
