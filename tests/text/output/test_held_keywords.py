"""Keywords that the compiler cannot hold: known as such, and only they."""

from __future__ import annotations

from typing import Any

import pytest
from llguidance import LLMatcher, LLTokenizer

from turnout.text.output.held_keywords import check_numbers, loosened, narrowed
from turnout.text.output.schemas import constraint

BYTES = LLTokenizer("byte")
LOST = [r"(?=a)b", r"^(?!a)b$", r"(?<!a)b", r"\bfoo\b", r"a\B", r"(a)\1", r"a^b", r"a$b", r"(?>a)", r"(?P=n)"]
KEPT = [r"^[A-Z]+$", r"\d{3}", r"^a$|^b$", r"(^a|b$)", r"[$^]", r"\$5", r"a\\b", r"^$", r"(?i)abc", r"[^]b]"]


def refusal(schema: Any) -> str:
    matcher = LLMatcher(BYTES, LLMatcher.grammar_from_json_schema(schema), log_level=0)
    return str(matcher.get_error()) if matcher.is_error() else ""


def may_be(schema: Any, number: float) -> bool:
    matcher = LLMatcher(BYTES, LLMatcher.grammar_from_json_schema(schema), log_level=0)
    return all(map(matcher.consume_token, str(int(number)).encode())) and matcher.is_accepting()


def of_string(pattern: str) -> dict[str, Any]:
    return {"type": "object", "properties": {"pattern": {"type": "string", "pattern": pattern}}}


@pytest.mark.parametrize("pattern", LOST)
def test_a_pattern_that_cannot_be_held_is_left_out(pattern: str) -> None:
    schema = of_string(pattern)
    assert refusal(schema)
    assert loosened(schema) == {"type": "object", "properties": {"pattern": {"type": "string"}}}
    assert not refusal(constraint(schema, strict=False))


@pytest.mark.parametrize("pattern", KEPT)
def test_other_patterns_hold(pattern: str) -> None:
    schema = of_string(pattern)
    assert not refusal(schema) and loosened(schema) == schema


@pytest.mark.parametrize(
    "schema",
    [
        {"enum": [1, 2**53 + 1]},
        {"const": {"id": [-(2**60)]}},
        {"type": "integer", "minimum": 2**63},
        {"type": "integer", "exclusiveMaximum": -(10**30)},
        {"type": "integer", "multipleOf": 2**60},
        {"anyOf": [{"type": "null"}, {"enum": [12345678901234567890]}]},
        {"type": "array", "items": {"const": 2**53 + 1}},
    ],
    ids=str,
)
def test_a_number_that_would_become_another_is_refused_or_left_out(schema: Any) -> None:
    """It was another number, without a word."""
    with pytest.raises(ValueError, match=r"has -?\d{16,}, and numbers beyond 2\^53"):
        check_numbers(schema)
    check_numbers(loosened(schema))


@pytest.mark.parametrize(
    "schema",
    [
        {"enum": [2**53, -(2**53), 1e300, "12345678901234567890"]},
        {"type": "integer", "minimum": -(2**53), "maximum": 2**53},
        {"properties": {"enum": {"type": "integer"}, "const": {"default": 2**60}}},
    ],
    ids=str,
)
def test_other_numbers_hold(schema: Any) -> None:
    check_numbers(schema)
    assert loosened(schema) == schema


@pytest.mark.parametrize(
    ("schema", "held"),
    [
        ({"minimum": -(2**63), "maximum": 2**63 - 1}, {"minimum": -(2**63) + 1024, "maximum": 2**63 - 1024}),
        ({"minimum": 0, "maximum": 2**64 - 1}, {"minimum": 0, "maximum": 2**63 - 1024}),
        ({"maximum": 2**53 + 1}, {"maximum": 2**53}),
        ({"exclusiveMinimum": -(2**53) - 3, "maximum": 5}, {"exclusiveMinimum": -(2**53) - 2, "maximum": 5}),
        ({"maximum": 1e300}, {"maximum": 2**63 - 1024}),
        ({"minimum": -(2**53), "maximum": 2**53}, {"minimum": -(2**53), "maximum": 2**53}),
    ],
    ids=str,
)
def test_the_bounds_of_large_integers_become_those_inside(schema: Any, held: Any) -> None:
    """Of 64-bit integers some were refused, and others allowed a number beyond the bound."""
    for kind in ("integer", "number"):
        check_numbers({"type": kind, **schema})
        loose = narrowed({"properties": {"a": {"type": kind, **schema}}})
        assert loose == {"properties": {"a": {"type": kind, **held}}} and not refusal(loose)
    assert may_be(narrowed({"type": "integer", **schema}), held.get("maximum", 0))
    assert not may_be(narrowed({"type": "integer", **schema}), schema.get("maximum", 2**62) + 1)


def test_a_bound_beyond_all_that_is_held_is_left_out() -> None:
    schema = {"type": "number", "minimum": 1e20}
    assert refusal(schema) and loosened(schema) == {"type": "number"}


def test_keys_by_a_pattern_that_cannot_be_held_may_be_any() -> None:
    schema = {
        "type": "object",
        "patternProperties": {"(?=a)": {"type": "null"}},
        "additionalProperties": False,
    }
    assert loosened(schema) == {"type": "object"}
    held = {"type": "object", "patternProperties": {"^a": {"type": "null"}}, "additionalProperties": False}
    assert loosened(held) == held


@pytest.mark.parametrize("malformed", [5, [1], "a", None])
def test_malformed_keys_by_pattern_are_left_to_the_compiler(malformed: Any) -> None:
    schema = {"type": "object", "patternProperties": malformed}
    assert loosened(schema) == schema
    assert constraint(schema, strict=False)["patternProperties"] == malformed
