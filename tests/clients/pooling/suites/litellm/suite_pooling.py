"""litellm's embeddings and reranking, by each of its providers that takes an address."""

from __future__ import annotations

import base64
import os
from array import array
from typing import Any

os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"  # it would ask GitHub for prices

import litellm
import pytest

URL = os.environ["TURNOUT_URL"]
TEXTS = ["A cat sleeps.", "The engine plans a step.", "Blocks are freed."]
EMBEDDERS = {
    "openai": {"model": "openai/embed", "api_base": f"{URL}/v1"},
    "vllm": {"model": "hosted_vllm/embed", "api_base": f"{URL}/v1"},
    "openai_like": {"model": "openai_like/embed", "api_base": f"{URL}/v1"},
    "ollama": {"model": "ollama/embed", "api_base": URL},
}
RERANKERS = {
    "cohere": {"model": "cohere/rerank", "api_base": URL},
    "cohere by its path": {"model": "cohere/rerank", "api_base": f"{URL}/v2/rerank"},
    "jina": {"model": "jina_ai/rerank", "api_base": URL},
    "vllm": {"model": "hosted_vllm/rerank", "api_base": URL},
}


@pytest.fixture(params=EMBEDDERS)
def embedder(request: pytest.FixtureRequest) -> dict[str, Any]:
    return {**EMBEDDERS[request.param], "api_key": "none", "num_retries": 0}


@pytest.fixture(params=RERANKERS)
def reranker(request: pytest.FixtureRequest) -> dict[str, Any]:
    return {**RERANKERS[request.param], "api_key": "none", "num_retries": 0}


def test_texts_are_embedded_in_their_order(embedder: dict[str, Any]) -> None:
    many = litellm.embedding(input=TEXTS, **embedder)
    assert [each["index"] for each in many.data] == [0, 1, 2] and many.usage.prompt_tokens > 6
    (one,) = litellm.embedding(input=[TEXTS[1]], **embedder).data
    assert one["embedding"] == pytest.approx(many.data[1]["embedding"], abs=1e-5)


async def test_texts_are_embedded_without_waiting(embedder: dict[str, Any]) -> None:
    assert len((await litellm.aembedding(input=TEXTS, **embedder)).data) == 3


@pytest.mark.parametrize("way", ["openai", "vllm"])
def test_dimensions_and_formats(way: str) -> None:
    asked: dict[str, Any] = {**EMBEDDERS[way], "api_key": "none", "allowed_openai_params": ["dimensions"]}
    (short,) = litellm.embedding(input=TEXTS[:1], dimensions=8, **asked).data
    (coded,) = litellm.embedding(input=TEXTS[:1], dimensions=8, encoding_format="base64", **asked).data
    numbers = array("f", base64.b64decode(coded["embedding"]))
    assert numbers.tolist() == pytest.approx(short["embedding"], abs=1e-6)


def test_documents_are_ranked(reranker: dict[str, Any]) -> None:
    ranked = litellm.rerank(query="What sleeps?", documents=TEXTS, top_n=2, **reranker)
    scores = [each["relevance_score"] for each in ranked.results]
    assert len(scores) == 2 and scores == sorted(scores, reverse=True)
    everything = litellm.rerank(query="What sleeps?", documents=TEXTS, **reranker)
    assert sorted(each["index"] for each in everything.results) == [0, 1, 2]


async def test_documents_are_ranked_without_waiting(reranker: dict[str, Any]) -> None:
    ranked = await litellm.arerank(query="What sleeps?", documents=TEXTS, return_documents=True, **reranker)
    assert len(ranked.results) == 3


def test_what_is_wrong_is_a_bad_request() -> None:
    with pytest.raises(litellm.BadRequestError, match="the model's vectors have 128"):
        asked: dict[str, Any] = {**EMBEDDERS["openai"], "api_key": "none"}
        litellm.embedding(input=TEXTS, dimensions=4096, allowed_openai_params=["dimensions"], **asked)
    with pytest.raises(litellm.NotFoundError, match="'reranker' is not served here"):
        litellm.rerank(model="hosted_vllm/reranker", api_base=URL, api_key="none", query="a", documents=["b"])
