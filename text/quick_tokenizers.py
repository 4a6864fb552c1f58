"""Tells tokenizers whose time and memory grow no faster than the text, whatever the text is.

Their parts come from the model's folder: an expression such as ``\\s+$`` takes hours for a megabyte of
spaces, and a rule that replaces one letter by a million others takes all memory.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

from tokenizers import Tokenizer as Backend

__all__ = ["is_quick", "is_quick_expression"]

QUICK = frozenset(
    [
        "NFC",
        "NFD",
        "NFKC",
        "NFKD",
        "Lowercase",
        "Strip",
        "StripAccents",
        "Nmt",
        "BertNormalizer",
        "Sequence",
        "Prepend",
        "Replace",
        "ByteLevel",
        "Split",
        "Digits",
        "Whitespace",
        "WhitespaceSplit",
        "Metaspace",
        "Punctuation",
        "BertPreTokenizer",
        "UnicodeScripts",
        "CharDelimiterSplit",
        "FixedLength",
    ]
)
"""Types of normalizers and pre-tokenizers that are quick unless an expression or a text of theirs is not."""
LONGEST_TEXT = 8
"""Characters that a rule may put in a text's place."""
LONGEST_EXPRESSION = 20_000

CLASS = r"(?:\[\^?(?:\\.|&(?!&)|[^\]\[\\&])+\]|\\[pP]\{\^?\w+\}|\\[sSdDwWrnt])"
ENDINGS = r"\(\?i:'\w{1,2}(?:\|'\w{1,2})*\)"
TAKING = rf"(?:[ ▁]\?|{CLASS}\??)?{CLASS}(?:\+|\{{\d+,\d*\}})?(?:{CLASS}\*)?(?:{ENDINGS}\?)?"
"""Takes what it can from the first character on that it may take, and gives back one at most."""
LITERAL = r"'\w{1,2}| \{\d+,\}| "
ALTERNATIVE = re.compile(rf"{TAKING}|{ENDINGS}|{LITERAL}")
LINES, LAST_SPACE, SPACES = r"\s*[\r\n]+", r"\s+(?!\S)", r"\s+"
"""The first two may have to give back the spaces they took, but once only where the third takes them then."""
CASED = re.compile(rf"({CLASS}\?)({CLASS})\*({CLASS})\+((?:{ENDINGS}\?)?)")
"""The letters of a word with a capital: so too, where ``\\1\\2+\\3*\\4`` takes them then."""


def is_quick(backend: Backend) -> bool:
    """Whether the parts before the model, which know no bound of their own, are known to be quick."""
    return all(map(_is_quick_part, (backend.normalizer, backend.pre_tokenizer)))


def _is_quick_part(part: Any) -> bool:
    if part is None:
        return True
    try:
        rules = json.loads(part.__getstate__())
    except Exception:  # a part that is Python code has no state; the library raises bare Exception
        return False
    return all(map(_is_quick_rule, _rules(rules)))


def _rules(value: Any) -> Iterator[dict[str, Any]]:
    """Every object within a part's description, except patterns."""
    if isinstance(value, list):
        for inner in value:
            yield from _rules(inner)
    elif isinstance(value, dict):
        if "type" in value:
            yield value
        for inner in value.values():
            yield from _rules(inner)


def _is_quick_rule(rule: dict[str, Any]) -> bool:
    pattern = rule.get("pattern")
    expression = pattern.get("Regex") if isinstance(pattern, dict) else None
    added = [rule.get("content"), rule.get("prepend"), rule.get("replacement")]
    return (
        rule["type"] in QUICK
        and all(len(text) <= LONGEST_TEXT for text in added if isinstance(text, str))
        and (expression is None or is_quick_expression(expression))
    )


def is_quick_expression(expression: str) -> bool:
    """Whether every alternative takes what it looks at, or leaves it to one that does."""
    if len(expression) > LONGEST_EXPRESSION:
        return False
    alternatives: list[str] = []
    at = 0
    while True:
        found = _alternative(expression, at)
        if found is None:
            return False
        alternatives.append(found)
        at += len(found)
        if at == len(expression):
            return all(_is_left_to_another(each, alternatives) for each in alternatives)
        at += 1


def _alternative(expression: str, at: int) -> str | None:
    """The alternative that begins there, up to the next bar or the end; None if it is of no known form."""
    for end in (LINES, LAST_SPACE, SPACES):
        if _ends(expression, at + len(end)) and expression.startswith(end, at):
            return end
    for form in (CASED, ALTERNATIVE):
        match = form.match(expression, at)
        if match and _ends(expression, match.end()):
            return match[0]
    return None


def _ends(expression: str, at: int) -> bool:
    return at == len(expression) or expression[at : at + 1] == "|"


def _is_left_to_another(alternative: str, alternatives: list[str]) -> bool:
    if alternative in (LINES, LAST_SPACE):
        return SPACES in alternatives
    if match := CASED.fullmatch(alternative):
        before, first, second, after = match.groups()
        return f"{before}{first}+{second}*{after}" in alternatives
    return True
