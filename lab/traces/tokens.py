"""Estimates how many tokens a text has, where no tokenizer is at hand."""

from __future__ import annotations

import math
import re
from collections.abc import Callable

__all__ = ["CountTokens", "estimated_tokens"]

CountTokens = Callable[[str], int]

_SYLLABLES = r"\u3040-\u30ff\u31f0-\u31ff\u3400-\u9fff\uac00-\ud7af\uf900-\ufaff\U00020000-\U0003ffff"
"""Kana, ideographs, and syllables of hangul."""
_SYLLABLE = re.compile(f"[{_SYLLABLES}]")
_PIECES = re.compile(rf"[^\W{_SYLLABLES}]{{1,6}}|[^\w\s{_SYLLABLES}]")


def estimated_tokens(text: str) -> int:
    """Near what vocabularies of today make.

    A token for every six letters of a word begun, one for a sign, three for every four characters of Chinese,
    Japanese and Korean.
    """
    pieces = sum(1 for _ in _PIECES.finditer(text))
    syllables = sum(1 for _ in _SYLLABLE.finditer(text))
    return max(1, pieces + math.ceil(0.75 * syllables))
