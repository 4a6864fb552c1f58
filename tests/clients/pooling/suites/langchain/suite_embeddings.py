"""langchain-tests' embeddings suites, whose own tests decide what an embedder must do."""

from __future__ import annotations

import os
from typing import Any

import pytest
from langchain_core.embeddings import Embeddings
from langchain_core.vectorstores import InMemoryVectorStore
from langchain_ollama import OllamaEmbeddings
from langchain_openai import OpenAIEmbeddings
from langchain_tests.integration_tests import EmbeddingsIntegrationTests

URL = os.environ["TURNOUT_URL"]
TEXTS = ["A cat sleeps.", "The engine plans a step.", "Blocks of keys and values are freed."]


class Suite(EmbeddingsIntegrationTests):
    @pytest.fixture
    def embedder(self) -> Embeddings:
        return self.embeddings_class(**self.embedding_model_params)

    def test_a_store_finds_a_text_by_itself(self, embedder: Embeddings) -> None:
        store = InMemoryVectorStore.from_texts(TEXTS, embedder)
        for text in TEXTS:
            assert store.similarity_search(text, k=1)[0].page_content == text

    async def test_batches_and_single_texts_have_the_same_embeddings(self, embedder: Embeddings) -> None:
        many = await embedder.aembed_documents(TEXTS * 50)
        assert len(many) == 150 and many[1] == pytest.approx(embedder.embed_query(TEXTS[1]), abs=1e-5)


class TestOpenAIEmbeddings(Suite):
    """Texts are sent as they are: cut into OpenAI's own tokens, another model could not read them."""

    @property
    def embeddings_class(self) -> type[Embeddings]:
        return OpenAIEmbeddings

    @property
    def embedding_model_params(self) -> dict[str, Any]:
        return {
            "model": "embed",
            "base_url": f"{URL}/v1",
            "api_key": "none",
            "check_embedding_ctx_length": False,
        }


class TestShorterEmbeddings(TestOpenAIEmbeddings):
    @property
    def embedding_model_params(self) -> dict[str, Any]:
        return {**super().embedding_model_params, "dimensions": 32}


class TestOllamaEmbeddings(Suite):
    @property
    def embeddings_class(self) -> type[Embeddings]:
        return OllamaEmbeddings

    @property
    def embedding_model_params(self) -> dict[str, Any]:
        return {"model": "embed", "base_url": URL}
