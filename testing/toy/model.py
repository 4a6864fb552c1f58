"""A language model of seven tokens, small enough to be recomputed at every turn."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from functools import cache

__all__ = ["EOS", "VOCABULARY", "argmax", "log_softmax", "misled_logits", "toy_logits"]

VOCABULARY = 7
EOS = 0
CONTEXT = 5
"""Tokens that it looks back."""


def toy_logits(context: Sequence[int]) -> list[float]:
    """What comes after `context`, [VOCABULARY]: a function of its last tokens and of its length."""
    seed = len(context) % 3
    for token in context[-CONTEXT:]:
        seed = seed * 31 + token + 1
    return _row(seed)


def misled_logits(context: Sequence[int]) -> list[float]:
    """Those of a smaller model: nearly the same, and wrong in a way that depends on the last token."""
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
