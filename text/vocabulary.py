"""Compares the vocabularies of two checkpoints."""

from __future__ import annotations

import hashlib
from pathlib import Path

from turnout.text.tokenizer import FAST, load_tokenizer

__all__ = ["tokenizer_digest", "vocabulary_difference"]


def vocabulary_difference(ours: Path, theirs: Path) -> str | None:
    """The first difference between the vocabularies of two checkpoints' folders; None if there is none.

    Raises ModelError if one of them has no tokenizer.
    """
    if _bytes(ours) is not None and _bytes(ours) == _bytes(theirs):
        return None
    mine, other = _texts(ours), _texts(theirs)
    for token in sorted(mine.keys() | other.keys()):
        if mine.get(token) != other.get(token):
            return f"token {token} is {_shown(mine, token)} in one and {_shown(other, token)} in the other"
    return None


def tokenizer_digest(folder: Path) -> str:
    """The same for two checkpoints of the same ``tokenizer.json``; empty where there is none."""
    text = _bytes(folder)
    return "" if text is None else hashlib.sha256(text).hexdigest()[:12]


def _bytes(folder: Path) -> bytes | None:
    file = folder / FAST
    return file.read_bytes() if file.is_file() else None


def _texts(folder: Path) -> dict[int, str]:
    vocabulary = load_tokenizer(folder).backend.get_vocab(with_added_tokens=True)
    return {token: text for text, token in vocabulary.items()}


def _shown(texts: dict[int, str], token: int) -> str:
    return repr(texts[token]) if token in texts else "unknown"
