"""Ollama's requests for embeddings, and their answers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, ClassVar

import msgspec
from pydantic import Field, SkipValidation, field_validator

from turnout.core import limits
from turnout.core.types.pooling import PoolingParams
from turnout.server.protocol.ollama.keep_alive import KeepAlive
from turnout.server.protocol.pooling.requests import PooledRequest, Text

__all__ = ["Embedded", "OllamaEmbed", "OllamaEmbeddings", "OneEmbedded"]


class _Ollama(PooledRequest):
    """What both requests have."""

    CUT_BY: ClassVar[str] = "truncate"

    options: dict[str, Any] | None = None
    """How to generate, which embeddings do not."""
    keep_alive: KeepAlive = None
    """As for `/api/chat`."""


class OllamaEmbed(_Ollama):
    """The body of a request for embeddings."""

    input: Annotated[list[Text], SkipValidation] = Field(default_factory=list)
    """A text or several."""
    truncate: bool = True
    """Cut texts that are longer than the model takes, instead of refusing them."""
    dimensions: int | None = None
    """Keep so many leading numbers of each embedding."""

    @field_validator("input", mode="before", json_schema_input_type=str | list[str])
    @classmethod
    def _texts(cls, value: object) -> list[Text]:
        texts: Any = [value] if isinstance(value, str) and value else value or []
        if not isinstance(texts, list) or not all(isinstance(text, str) and text for text in texts):
            raise ValueError("a string or a list of strings is expected, none of them empty")
        if len(texts) > limits.POOLED.most:
            raise ValueError(f"at most {limits.POOLED.whole:,} texts are expected, not {len(texts):,}")
        return texts

    def pooling_params(self) -> PoolingParams:
        return PoolingParams(dimensions=self.dimensions)


class OllamaEmbeddings(_Ollama):
    """The body of a request for one embedding, of Ollama's older API."""

    prompt: str = ""
    """The text."""

    def as_embed(self) -> OllamaEmbed:
        return OllamaEmbed(model=self.model, input=[self.prompt])


class Embedded(msgspec.Struct):
    """Embeddings, in the texts' order."""

    model: str
    embeddings: Sequence[Sequence[float]]
    total_duration: int
    """Nanoseconds."""
    load_duration: int
    prompt_eval_count: int
    """Tokens of all texts."""


class OneEmbedded(msgspec.Struct):
    """An embedding."""

    embedding: Sequence[float]
