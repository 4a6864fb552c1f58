"""Estimates how many tokens a text has, where no tokenizer is at hand."""

from __future__ import annotations

import re
from collections.abc import Callable

__all__ = ["CountTokens", "estimated_tokens"]

CountTokens = Callable[[str], int]

_PIECES = re.compile(r"\w{1,6}|[^\w\s]")


def estimated_tokens(text: str) -> int:
    """A token for every six letters of a word begun, one for a sign: near what vocabularies of today make."""
    return max(1, sum(1 for _ in _PIECES.finditer(text)))
