"""How alike two embeddings are. No torch: the server's process compares, too."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import numpy.typing as npt

from turnout.core.types.pooling import Pooled, Similarity

__all__ = ["Vector", "similarity", "vector_of"]

Vector = npt.NDArray[np.float32]
"""[size], or [tokens, size] of a pooling that gives a vector for each token."""

ROWS = 256
"""Tokens of a query whose similarities are in memory at once."""


def vector_of(pooled: Pooled) -> Vector:
    return np.frombuffer(pooled.data, "<f4").reshape(pooled.shape)


def similarity(kind: Similarity, query: Vector, document: Vector) -> float:
    """Returns the similarity of two embeddings, as `kind` has it; the higher, the more alike.

    Of a vector for each token it is MaxSim (Khattab and Zaharia 2020, ColBERT), whatever `kind` says: each
    token of the query counts the greatest dot product with a token of the document. vLLM's late interaction
    and the MultiVectorEncoder of sentence-transformers compute the same, of vectors as the model gives them:
    normalized, unless its folder says otherwise.
    """
    return _max_sim(query, document) if query.ndim == 2 else _KINDS[kind](query, document)


def _max_sim(query: Vector, document: Vector) -> float:
    parts = (query[start : start + ROWS] for start in range(0, len(query), ROWS))
    return sum(float((part @ document.T).max(axis=1).sum()) for part in parts)


def _cosine(one: Vector, other: Vector) -> float:
    lengths = float(np.linalg.norm(one) * np.linalg.norm(other))
    return float(one @ other) / lengths if lengths else 0.0


_KINDS: Mapping[Similarity, Callable[[Vector, Vector], float]] = {
    "cosine": _cosine,
    "dot": lambda one, other: float(one @ other),
    "euclidean": lambda one, other: -float(np.linalg.norm(one - other)),
    "manhattan": lambda one, other: -float(np.abs(one - other).sum()),
}
