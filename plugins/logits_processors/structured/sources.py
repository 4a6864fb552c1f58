"""A form in llguidance's notation."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, NoReturn, cast

from llguidance import LLMatcher, grammar_from

from turnout.core import limits
from turnout.core.types.structured_outputs import StructuredOutputs
from turnout.text.output.held_keywords import check_numbers, narrowed
from turnout.text.output.json_notation import for_compiler

if TYPE_CHECKING:
    from llguidance._lib import JsonCompileOptions

__all__ = ["source"]

TEXT_ENDS = re.compile(r'[|()\[\]*+?{}"\n]')
"""In an expression or a grammar, what repeats, groups or ends a text."""
LARK_PARTS = re.compile(r'"(?:\\.|[^"\\\n])*"|/(?:\\.|[^/\\\n])+/|//[^\n]*|(?P<special><[^<>\s]+>)')
"""What may hold a special token's name as mere text, and the name of a special token."""


def source(form: StructuredOutputs, specials: Mapping[str, int]) -> str:
    """Returns the grammar of a form. Raises ValueError with the reason if there is none.

    specials: the ids of special tokens by their names, which a grammar may use.
    """
    if form.json is not None or form.json_object:
        return _of_schema(form.json or '{"type": "object"}')  # type: ignore[arg-type]  # text by now
    if form.choice is not None:
        # One terminal: alternatives of a rule would each be followed on their own.
        return "start: CHOICE\nCHOICE: " + " | ".join(map(json.dumps, form.choice))
    text = form.grammar if form.regex is None else form.regex
    assert text is not None
    for part in TEXT_ENDS.split(text):
        _check_length(part)
    if form.regex is not None:
        return LLMatcher.grammar_from_regex(form.regex)
    return _by_number(grammar_from("grammar", text), specials)


def _of_schema(schema: str) -> str:
    read = json.loads(schema, parse_constant=_refuse_number, parse_float=_finite)
    texts = [read]
    while texts:
        value = texts.pop()
        if isinstance(value, dict):
            texts += [*value, *value.values()]
        elif isinstance(value, list):
            texts += value
        elif isinstance(value, str):
            _check_length(value)
    check_numbers(read)
    compiled, options = for_compiler(narrowed(read))
    return LLMatcher.grammar_from_json_schema(compiled, defaults=cast("JsonCompileOptions", options))


def _finite(number: str) -> float:
    """Raises ValueError for a number such as 1e999, which would be read as infinite."""
    value = float(number)
    return value if math.isfinite(value) else _refuse_number(number)


def _refuse_number(number: str) -> NoReturn:
    """The compiler would take for null what JSON cannot write: NaN, Infinity, and what is beyond a float."""
    raise ValueError(f"{number[:40]} is no number of JSON, or too large a one; give another")


def _check_length(text: str) -> None:
    """A text that the output must hold as it stands is tokenized at each of its tokens."""
    size, most = len(text.encode(errors="replace")), limits.FORM_TEXT.whole
    if size > most:
        raise ValueError(f"it spells out a text of {size:,} bytes; at most {most:,} are allowed")


def _by_number(lark: str, specials: Mapping[str, int]) -> str:
    """Names special tokens by their ids, since the names are hidden from the compiler (see vocabulary.py)."""

    def numbered(part: re.Match[str]) -> str:
        token = specials.get(part["special"] or "")
        return part[0] if token is None else f"<[{token}]>"

    return LARK_PARTS.sub(numbered, lark)
