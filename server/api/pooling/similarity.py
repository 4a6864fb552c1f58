"""How alike two embeddings are, as a model's folder says to compare them."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Mapping, Sequence
from math import dist, sqrt
from operator import mul, sub

from turnout.core.types.pooling import Pooled, Similarity

__all__ = ["similarity"]

Vector = Sequence[float]


def similarity(kind: Similarity, one: Pooled, other: Pooled) -> float:
    """Returns the similarity of two embeddings; the higher, the more alike."""
    return _KINDS[kind](_read(one), _read(other))


def _read(pooled: Pooled) -> Vector:
    vector = array("f")
    vector.frombytes(pooled.data)
    return vector


def _dot(one: Vector, other: Vector) -> float:
    product: float = sum(map(mul, one, other))
    return product


def _cosine(one: Vector, other: Vector) -> float:
    lengths = sqrt(_dot(one, one) * _dot(other, other))
    return _dot(one, other) / lengths if lengths else 0.0


_KINDS: Mapping[Similarity, Callable[[Vector, Vector], float]] = {
    "cosine": _cosine,
    "dot": _dot,
    "euclidean": lambda one, other: -dist(one, other),
    "manhattan": lambda one, other: -sum(map(abs, map(sub, one, other))),
}
