"""Cohere's own clients of reranking, and Jina's shape as its documentation shows it."""

from __future__ import annotations

import json
import os
import urllib.request
from typing import Any

import cohere
import pytest
from cohere.errors import BadRequestError, NotFoundError

URL = os.environ["TURNOUT_URL"]
TEXTS = ["A cat sleeps.", "The engine plans a step.", "Blocks are freed."]
QUERY = "What sleeps?"


@pytest.fixture(params=[cohere.Client, cohere.ClientV2])
def client(request: pytest.FixtureRequest) -> Any:
    return request.param(api_key="none", base_url=URL)


def post(path: str, **body: Any) -> Any:
    headers = {"Content-Type": "application/json", "Authorization": "Bearer none"}
    asked = urllib.request.Request(URL + path, json.dumps(body).encode(), headers)
    with urllib.request.urlopen(asked, timeout=60) as answer:
        return json.load(answer)


def test_documents_are_ranked(client: Any) -> None:
    ranked = client.rerank(model="rerank", query=QUERY, documents=TEXTS, top_n=2)
    scores = [each.relevance_score for each in ranked.results]
    assert len(scores) == 2 and scores == sorted(scores, reverse=True)
    assert ranked.id and ranked.meta.billed_units.search_units == 1
    everything = client.rerank(model="rerank", query=QUERY, documents=TEXTS)
    assert sorted(each.index for each in everything.results) == [0, 1, 2]


def test_long_documents_are_cut_as_cohere_cuts_them() -> None:
    client = cohere.ClientV2(api_key="none", base_url=URL)
    documents = [f"{text} " * 400 for text in TEXTS]
    whole, cut = (
        {each.index: each.relevance_score for each in found.results}
        for found in (
            client.rerank(model="rerank", query=QUERY, documents=documents),
            client.rerank(model="rerank", query=QUERY, documents=documents, max_tokens_per_doc=8),
        )
    )
    assert len(whole) == len(cut) == 3 and whole != cut


def test_what_would_change_the_ranking_and_is_not_supported_is_refused() -> None:
    client = cohere.Client(api_key="none", base_url=URL)
    for field in ({"max_chunks_per_doc": 3}, {"rank_fields": ["title"]}):
        with pytest.raises(BadRequestError, match="is not supported"):
            client.rerank(model="rerank", query=QUERY, documents=TEXTS, **field)


def test_documents_come_back_where_asked() -> None:
    client = cohere.Client(api_key="none", base_url=URL)
    documents = [{"text": text} for text in TEXTS]
    ranked = client.rerank(model="rerank", query=QUERY, documents=documents, return_documents=True)
    assert {each.document.text for each in ranked.results} == set(TEXTS)


async def test_documents_are_ranked_without_waiting() -> None:
    client = cohere.AsyncClientV2(api_key="none", base_url=URL)
    assert len((await client.rerank(model="rerank", query=QUERY, documents=TEXTS)).results) == 3


def test_what_is_wrong_is_said(client: Any) -> None:
    with pytest.raises(NotFoundError, match="not served here"):
        client.rerank(model="reranker", query=QUERY, documents=TEXTS)
    with pytest.raises(BadRequestError, match="at least one text"):
        client.rerank(model="rerank", query=QUERY, documents=[])


def test_jinas_shape() -> None:
    asked = {"model": "rerank", "query": QUERY, "top_n": 3, "documents": TEXTS}
    found = post("/v1/rerank", **asked, return_documents=False)
    assert found["model"] == "rerank" and found["usage"]["total_tokens"] > 10
    assert all(each.keys() == {"index", "relevance_score"} for each in found["results"])
    shown = post("/v1/rerank", **asked)
    assert {each["document"]["text"] for each in shown["results"]} == set(TEXTS)
