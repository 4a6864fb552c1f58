"""Embeddings are compared as a model's folder says, and vectors for each token by MaxSim."""

from __future__ import annotations

import numpy as np
import pytest

from turnout.core.types.pooling import Pooled, Similarity
from turnout.runner.pooling.similarity import ROWS, similarity, vector_of

ONE, OTHER = np.float32([3, 4]), np.float32([4, 3])


@pytest.mark.parametrize(
    ("kind", "expected"), [("cosine", 24 / 25), ("dot", 24), ("euclidean", -(2**0.5)), ("manhattan", -2)]
)
def test_two_vectors_are_compared_as_the_folder_says(kind: Similarity, expected: float) -> None:
    assert similarity(kind, ONE, OTHER) == pytest.approx(expected)


def test_a_vector_of_zeros_is_like_nothing() -> None:
    assert similarity("cosine", ONE, 0 * OTHER) == 0


@pytest.mark.parametrize("tokens", [1, 3, ROWS + 5])
def test_vectors_for_each_token_are_compared_by_max_sim(tokens: int) -> None:
    """Their numbers were multiplied one by one, up to the end of the shorter text's."""
    draws = np.random.default_rng(0)
    query, document = (draws.normal(size=(n, 4)).astype(np.float32) for n in (tokens, 7))
    expected = sum(max(float(token @ other) for other in document) for token in query)
    assert similarity("cosine", query, document) == pytest.approx(expected, rel=1e-5)


def test_a_vector_keeps_the_shape_that_the_engine_gave_it() -> None:
    data = np.arange(6, dtype="<f4")
    assert vector_of(Pooled(data.tobytes(), (2, 3))).tolist() == data.reshape(2, 3).tolist()
