"""The answers with embeddings, scores and classes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
from msgspec import UNSET, UnsetType

__all__ = [
    "Classes",
    "ClassesList",
    "Embedding",
    "EmbeddingList",
    "PooledList",
    "PooledText",
    "PoolingUsage",
    "Ranked",
    "RankedDocument",
    "RankedList",
    "Score",
    "ScoreList",
]

Numbers = Sequence[float | Sequence[float]] | str
"""Numbers, a list of them for each token, or base64 of them as float32, the low byte first."""


class PoolingUsage(msgspec.Struct):
    """The tokens of a request."""

    prompt_tokens: int
    """Of all texts, special tokens included."""
    total_tokens: int
    """The same."""


class Embedding(msgspec.Struct):
    """The embedding of a text."""

    index: int
    embedding: Numbers
    object: str = "embedding"


class EmbeddingList(msgspec.Struct):
    """The embeddings of a request's texts, in their order."""

    id: str
    created: int
    model: str
    data: Sequence[Embedding]
    usage: PoolingUsage
    object: str = "list"


class PooledText(msgspec.Struct):
    """What a text was pooled to."""

    index: int
    data: Numbers
    object: str = "pooling"


class PooledList(msgspec.Struct):
    """What a request's texts were pooled to, in their order."""

    id: str
    created: int
    model: str
    data: Sequence[PooledText]
    usage: PoolingUsage
    object: str = "list"


class Score(msgspec.Struct):
    """The score of a pair."""

    index: int
    score: float
    object: str = "score"


class ScoreList(msgspec.Struct):
    """The scores of a request's pairs, in their order."""

    id: str
    created: int
    model: str
    data: Sequence[Score]
    usage: PoolingUsage
    object: str = "list"


class Classes(msgspec.Struct):
    """The classes of a text."""

    index: int
    label: str
    """The most likely."""
    probs: Sequence[float]
    num_classes: int


class ClassesList(msgspec.Struct):
    """The classes of a request's texts, in their order."""

    id: str
    created: int
    model: str
    data: Sequence[Classes]
    usage: PoolingUsage
    object: str = "list"


class RankedDocument(msgspec.Struct):
    """A document."""

    text: str


class Ranked(msgspec.Struct):
    """A document's place."""

    index: int
    """Among the request's documents."""
    relevance_score: float
    document: RankedDocument | UnsetType = UNSET


class RankedList(msgspec.Struct):
    """Documents, the most relevant first."""

    id: str
    model: str
    results: Sequence[Ranked]
    usage: PoolingUsage
    meta: dict[str, Any]
    """Cohere's."""
