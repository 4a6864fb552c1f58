"""A language model with seven tokens, small enough to be computed anew for every token."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from functools import cache

__all__ = ["EOS", "VOCABULARY", "argmax", "log_softmax", "misled_logits", "toy_logits"]

VOCABULARY = 7
EOS = 0
CONTEXT = 5
"""Tokens on which the next one depends."""


def toy_logits(context: Sequence[int]) -> list[float]:
    """The logits after `context`, [VOCABULARY]: a function of its last tokens and its length."""
    seed = len(context) % 3
    for token in context[-CONTEXT:]:
        seed = seed * 31 + token + 1
    return _row(seed)


def misled_logits(context: Sequence[int]) -> list[float]:
    """A smaller model's logits: nearly the same, with an error that depends on the last token."""
    return [value + 0.9 * ((token + context[-1]) % 3 - 1) for token, value in enumerate(toy_logits(context))]


@cache
def _row(seed: int) -> list[float]:
    rng = random.Random(seed)
    return [rng.uniform(-2, 2) - (1.0 if token == EOS else 0.0) for token in range(VOCABULARY)]


def argmax(row: Sequence[float]) -> int:
    return max(range(len(row)), key=row.__getitem__)


def log_softmax(row: Sequence[float]) -> list[float]:
    norm = math.log(sum(math.exp(x) for x in row))
    return [x - norm for x in row]
