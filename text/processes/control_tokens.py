"""Tokenizes the spellings of control tokens as plain text, as they stand in a file that a user edits."""

from __future__ import annotations

import json
import re
from typing import Any

from tokenizers import Tokenizer as Backend

__all__ = ["control_ids", "literal_backend"]

SPELLING = re.compile(r"<\|.*\|>|<｜.*｜>|<fim[-_]\w+>|▁<(?:PRE|SUF|MID|EOT)>|\[(?:PREFIX|SUFFIX)\]")
"""Qwen's vocabulary, among others, calls tokens of these forms ordinary. Other ordinary tokens, such as
Gemma's ``<table>``, do stand for text."""
LOWEST = -1e6
"""A score of SentencePiece's below those of all ways to spell a token by others."""


def control_ids(backend: Backend) -> frozenset[int]:
    """The tokens that no text should become."""
    added = backend.get_added_tokens_decoder()
    return frozenset(id for id, token in added.items() if _is_control(token.special, token.content))


def literal_backend(rules: str) -> Backend:
    """A tokenizer that takes the spellings of control tokens for plain text.

    rules: the JSON of one that takes them for the tokens.
    """
    described = json.loads(rules)
    controls = set()
    for token in described["added_tokens"]:
        if _is_control(token["special"], token["content"]):
            token["special"] = True
            controls.add(token["content"])
    _spell_out(described["model"], controls)
    backend = Backend.from_str(json.dumps(described))
    backend.encode_special_tokens = True
    return backend


def _is_control(special: bool, text: str) -> bool:
    return special or SPELLING.fullmatch(text) is not None


def _spell_out(model: dict[str, Any], controls: set[str]) -> None:
    """Keep the model itself from making control tokens: a vocabulary may have the pieces that make one."""
    if model["type"] == "BPE":
        model["merges"] = [pair for pair in model["merges"] if "".join(pair) not in controls]
    elif model["type"] == "Unigram":
        model["vocab"] = [[text, LOWEST if text in controls else score] for text, score in model["vocab"]]
