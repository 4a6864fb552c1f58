"""llama-index: its embedders, an index that answers questions, and its rerankers that take an address."""

from __future__ import annotations

import os

import pytest
from llama_index.core import Document, Settings, VectorStoreIndex
from llama_index.core.base.embeddings.base import BaseEmbedding
from llama_index.core.embeddings import MockEmbedding
from llama_index.core.postprocessor.types import BaseNodePostprocessor
from llama_index.core.schema import NodeWithScore, QueryBundle, TextNode
from llama_index.embeddings.ollama import OllamaEmbedding
from llama_index.embeddings.openai_like import OpenAILikeEmbedding
from llama_index.llms.openai_like import OpenAILike
from llama_index.postprocessor.cohere_rerank import CohereRerank
from llama_index.postprocessor.jinaai_rerank import JinaRerank

URL = os.environ["TURNOUT_URL"]
TEXTS = [
    "A cat sleeps.",
    "The engine plans a step.",
    "Blocks of keys and values are freed.",
    "A request names its model.",
]
QUERY = "What sleeps?"
Settings.embed_model = MockEmbedding(1)  # nothing may ask OpenAI itself


def by_openai(**more: object) -> OpenAILikeEmbedding:
    return OpenAILikeEmbedding(model_name="embed", api_base=f"{URL}/v1", api_key="none", **more)


EMBEDDERS = {
    "openai": lambda: by_openai(embed_batch_size=2),
    "openai, shorter": lambda: by_openai(dimensions=32),
    "ollama": lambda: OllamaEmbedding("embed", base_url=URL),
}
RERANKERS = {
    "cohere": lambda: CohereRerank(top_n=3, model="rerank", api_key="none", base_url=URL, max_retries=1),
    "jina": lambda: JinaRerank(top_n=3, model="rerank", api_key="none", base_url=f"{URL}/v1"),
}


@pytest.fixture(params=EMBEDDERS)
def embedder(request: pytest.FixtureRequest) -> BaseEmbedding:
    return EMBEDDERS[request.param]()


@pytest.fixture(params=RERANKERS)
def reranker(request: pytest.FixtureRequest) -> BaseNodePostprocessor:
    return RERANKERS[request.param]()


def test_texts_are_embedded_in_batches(embedder: BaseEmbedding) -> None:
    many = embedder.get_text_embedding_batch(TEXTS)
    assert len(many) == 4 and many[2] == pytest.approx(embedder.get_text_embedding(TEXTS[2]), abs=1e-5)
    assert embedder.similarity(many[0], embedder.get_query_embedding(TEXTS[0])) == pytest.approx(1, abs=1e-5)


async def test_texts_are_embedded_without_waiting(embedder: BaseEmbedding) -> None:
    assert len(await embedder.aget_text_embedding_batch(TEXTS)) == 4


def test_an_index_finds_a_text_by_itself(embedder: BaseEmbedding) -> None:
    index = VectorStoreIndex.from_documents([Document(text=text) for text in TEXTS], embed_model=embedder)
    retriever = index.as_retriever(similarity_top_k=1)
    for text in TEXTS:
        assert retriever.retrieve(text)[0].text == text


def test_nodes_are_ranked(reranker: BaseNodePostprocessor) -> None:
    nodes = [NodeWithScore(node=TextNode(text=text), score=0.5) for text in TEXTS]
    found = reranker.postprocess_nodes(nodes, QueryBundle(QUERY))
    scores = [node.score for node in found]
    assert len(found) == 3 and scores == sorted(scores, reverse=True)
    assert {node.text for node in found} < set(TEXTS)


def test_a_question_is_answered_by_three_models(embedder: BaseEmbedding, reranker) -> None:
    chat = OpenAILike(
        model="chat",
        api_base=f"{URL}/v1",
        api_key="none",
        is_chat_model=True,
        context_window=2048,
        max_tokens=16,
    )
    index = VectorStoreIndex.from_documents([Document(text=text) for text in TEXTS], embed_model=embedder)
    engine = index.as_query_engine(llm=chat, similarity_top_k=4, node_postprocessors=[reranker])
    answer = engine.query(QUERY)
    assert str(answer) and len(answer.source_nodes) == 3
