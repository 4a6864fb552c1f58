"""Where a text may be cut so that what stands before the cut has the tokens that it has in the whole text.

Tokens of a text that is longer than a model reads are thrown away, so its beginning alone need be tokenized.
A cut is before a single space between two letters or digits. Nothing crosses it where every part of a
tokenizer is of a kind listed here:

- No normalizer changes a character by what lies beyond such a space: letters and digits of the categories
  below neither combine with what stands before them nor with what follows.
- The pre-tokenizer begins a new word there, and models look at one word at a time.
- No added token holds a space behind another character.
"""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Iterator
from typing import Any

from tokenizers import Tokenizer as Backend

__all__ = ["cuts", "is_cut_at_spaces"]

NORMALIZERS = frozenset(
    [
        *("BertNormalizer", "Lowercase", "Nmt", "NFC", "NFD", "NFKC", "NFKD", "Precompiled", "Prepend"),
        *("Strip", "StripAccents"),
    ]
)
WORDS = frozenset(["BertPreTokenizer", "Whitespace", "WhitespaceSplit"])
"""Pre-tokenizers that split at spaces, whatever their options are."""
EXPRESSIONS = frozenset(
    [
        r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|"
        r"\s+(?!\S)|\s+",
        r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|"
        r"\s*[\r\n]+|\s+(?!\S)|\s+",
    ]
)
"""Of Qwen and of Llama 3: a space before a letter or digit is taken with what follows, or by itself."""
GAP = re.compile(r"(?<=\w) (?=\w)")
SIMPLE = frozenset(["Lu", "Ll", "Nd"])
"""Categories whose characters make no grapheme with their neighbours."""


def is_cut_at_spaces(backend: Backend) -> bool:
    """Says whether `cuts` of a text are places where no token of this tokenizer crosses."""
    added = backend.get_added_tokens_decoder().values()
    if any(re.search(r"\S\s", token.content) for token in added):
        return False
    if getattr(backend.model, "dropout", None):
        return False
    try:
        normalizer, words = map(_rules, (backend.normalizer, backend.pre_tokenizer))
    except Exception:  # a part that is Python code has no state; the library raises bare Exception
        return False
    parts = words.get("pretokenizers", [words]) if words else []
    return bool(parts) and _splits(parts[0]) and all(map(_is_local, _flat(normalizer)))


def cuts(text: str, least: int) -> Iterator[int]:
    """Yields places at which to cut, each twice as far as the one before, and at last its length.

    least: characters before the first one.
    """
    at = least
    while at < len(text):
        gaps = GAP.finditer(text, at)
        place = next((gap.start() for gap in gaps if _is_simple(text, gap.start())), len(text))
        if place < len(text):
            yield place
        at = 2 * place
    yield len(text)


def _is_simple(text: str, gap: int) -> bool:
    return {unicodedata.category(text[at]) for at in (gap - 1, gap + 1)} <= SIMPLE


def _rules(part: Any) -> dict[str, Any]:
    """What a part of a tokenizer says of itself; empty if there is none."""
    rules: dict[str, Any] = {} if part is None else json.loads(part.__getstate__())
    return rules


def _flat(rules: dict[str, Any]) -> Iterator[dict[str, Any]]:
    if rules.get("type") == "Sequence":
        for inner in rules["normalizers"]:
            yield from _flat(inner)
    elif rules:
        yield rules


def _is_local(rule: dict[str, Any]) -> bool:
    if rule["type"] != "Replace":
        return rule["type"] in NORMALIZERS
    pattern = rule["pattern"]
    literal = pattern.get("String")
    return pattern.get("Regex") == " {2,}" or (literal is not None and not re.search(r"\s", literal))


def _splits(rule: dict[str, Any]) -> bool:
    match rule["type"]:
        case "Metaspace":
            return rule.get("split", True) is not False
        case "ByteLevel":
            return rule.get("use_regex", True) is not False
        case "Split":
            known = rule["pattern"].get("Regex") in EXPRESSIONS
            return known and rule["behavior"] == "Isolated" and not rule["invert"]
        case kind:
            return kind in WORDS
