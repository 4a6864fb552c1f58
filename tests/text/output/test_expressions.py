"""Regular expressions of JSON schemas: what they find is what the compiler of grammars lets be written."""

from __future__ import annotations

import random
import re
import warnings

import pytest
from llguidance import LLMatcher, LLTokenizer

from turnout.core.types.structured_outputs import StructuredOutputs
from turnout.text.output.expressions import compiled_parts, whole_expression
from turnout.text.output.grammar.string_forms import string_form
from turnout.text.output.schemas import answer_expression, constraint

BYTES = LLTokenizer("byte")
NONE = [
    r"(?=a)b",
    r"a(?<!b)",
    r"\bfoo",
    r"(a)\1",
    r"(?P=n)",
    r"\k<n>",
    r"a^b",
    r"a$b",
    "(?>a)",
    "(?#n)a",
    "a{,3}",
]
NONE += [r"\ud83d", r"\h", r"[\q]", "[]", "(?'n'a)", r"\Ga", r"a\Z.", r"b\A", "a\\"]


def follows(grammar: str, text: str) -> bool:
    matcher = LLMatcher(BYTES, grammar, log_level=0)
    assert not matcher.is_error(), matcher.get_error()
    return all(map(matcher.consume_token, text.encode())) and matcher.is_accepting()


def may_be(pattern: str, text: str) -> bool:
    """Whether a string of this pattern may be the text, in JSON and as it stands in a call."""
    assert compiled_parts(pattern) is not None
    schema = {"type": "string", "pattern": pattern}
    in_json = follows(LLMatcher.grammar_from_json_schema(constraint(schema, strict=True)), f'"{text}"')
    form = string_form(schema, strict=False)
    as_it_stands = follows(f"start: T\nT: {form}", text)
    if form != "/(?s:.)*/":
        assert as_it_stands == in_json
    return in_json


@pytest.mark.parametrize(
    ("regex", "text"),
    [("a/b", "a/b"), (r"a\/b", "a/b"), (r"[\/.]", "/"), (r"a\\/b", r"a\/b"), (r"a\\\/b", r"a\/b")],
)
def test_a_slash_may_be_escaped_in_the_form_of_an_answer(regex: str, text: str) -> None:
    """Beside tools, `\\/`, as JavaScript prints it, was a backslash and the end of the expression."""
    assert follows(f"start: {answer_expression(StructuredOutputs(regex=regex))}", text)


@pytest.mark.parametrize("pattern", NONE)
def test_what_the_compiler_has_not_is_known(pattern: str) -> None:
    assert compiled_parts(pattern) is None


@pytest.mark.parametrize(
    ("pattern", "found", "not_found"),
    [
        (r"^[\w-\.]+@([\w-]+\.)+[\w-]{2,4}$", ["a-b.c@d-e.org"], ["a@b", "é@d.org"]),
        (r"^[^[\]]*$", ["", "ab"], ["a[", "]"]),
        ("^[a&&b]$", ["a", "&", "b"], ["", "c"]),
        ("^[+--]$", ["+", ",", "-"], ["."]),
        ("^[a~~b]$", ["~"], ["c"]),
        (r"^[\d-x]$", ["5", "-", "x"], ["a", "٣"]),
        (r"^[x-\d]$", ["5", "-", "x"], ["y"]),
        (r"^[^\D5]$", ["4"], ["5", "a"]),
        (r"^\W$", ["é", "-"], ["a", "_"]),
        (r"^\uD83D\uDE00[\uD83D\uDE00-\uD83D\uDE02]$", ["😀😂"], ["😀😃"]),
        (r"^\u{1F600}$", ["😀"], ["u"]),
        ("^{x}{2}$", ["{x}}"], ["{x}{2}"]),
        ("{}", ["a{}"], ["{"]),
        (r"\Aab\Z", ["ab"], ["abc", "cab"]),
        (r"^\é\<\>\-\_\ \/$", ["é<>-_ /"], ["é"]),
        ("^a/[/]$", ["a//"], ["a/"]),
        (r"^(?<year>\d{4})-(?P<month>\d\d)$", ["2026-11"], ["2026", "٢026-11"]),
        (r"^\p{Lu}\P{L}$", ["É1"], ["é1", "Éa"]),
        ("^(?:a|b)|c$", ["ax", "xc"], ["xa", "cx"]),
        ("(?i)^ab$|^c$", ["AB", "C"], ["B"]),
        ("^[[:alpha:]]$", ["a"], [":"]),
        ("^[]a]$", ["]", "a"], ["b"]),
        ("^[^]$", ["a", "é"], ["", "ab"]),
    ],
)
def test_a_pattern_means_what_it_means_in_javascript(
    pattern: str, found: list[str], not_found: list[str]
) -> None:
    assert [text for text in found + not_found if may_be(pattern, text)] == found


@pytest.mark.parametrize("seed", range(60))
def test_classes_hold_the_same_characters_as_elsewhere(seed: int) -> None:
    chance = random.Random(seed)
    inside = "".join(chance.choices(["a", "c", "-", "&", "~", "[", "^", r"\]", r"\-", r"\d", r"\w"], k=5))
    pattern = f"^[{chance.choice(['', '^'])}{inside}]$"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            known = re.compile(pattern, re.ASCII)
        except re.error:
            return  # a range from a larger to a smaller one, or to a class
    for character in "abcd-&~[]^5_ é":
        assert may_be(pattern, character) == bool(known.search(character)), (pattern, character)


@pytest.mark.parametrize(
    ("expression", "whole", "not_whole"),
    [
        ("a|b", ["a", "b"], ["ab", "xa", "ba", ""]),
        ("^a$|^b$", ["a", "b"], ["ab"]),
        (r"\Aa|b\Z", ["a", "b"], ["ab"]),
        ("(?i)sel(ect)?", ["SEL", "Select"], ["selec"]),
        (r"^(?P<month>May|June)\s+\d{1,2}$", ["May 3", "June  30"], ["May", "a May 3", "May 3 b"]),
        ("", [""], ["a"]),
        (r"\(|\)", ["(", ")"], ["()"]),
        (r"[\s\S]*x", ["x", "a x"], ["xa"]),
    ],
)
def test_an_expression_may_be_held_for_whole_texts(
    expression: str, whole: list[str], not_whole: list[str]
) -> None:
    pattern = whole_expression(expression)
    assert pattern is not None
    assert all(may_be(pattern, text) for text in whole)
    assert not any(may_be(pattern, text) for text in not_whole)


@pytest.mark.parametrize("expression", [*NONE, "(^a)", "(a$|b)c", "a(?i)b", "(a", "a)", "a)|(?:b", "a|b)|(c"])
def test_what_cannot_be_held_for_whole_texts_is_known(expression: str) -> None:
    assert whole_expression(expression) is None
