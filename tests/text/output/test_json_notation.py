"""Strings may be escaped as models are trained to escape them, and no key is another one in disguise."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from turnout.core.types.structured_outputs import StructuredOutputs
from turnout.plugins.formats.gemma import function_gemma
from turnout.plugins.formats.llama import pythonic
from turnout.plugins.formats.qwen import qwen3_coder
from turnout.plugins.logits_processors.structured.sources import source
from turnout.testing.checks.babbler import Babbler
from turnout.text.output.grammar.call_grammar import Wanted, call_grammar
from turnout.text.output.json_notation import for_compiler
from turnout.text.output.schemas import constraint
from turnout.text.output.tools import Tool

BABBLER = Babbler(())
CAFE = {"type": "object", "properties": {"a": {"type": "integer"}}}
TYPED = {**CAFE, "additionalProperties": {"type": "string"}}
PAIRED = r'{"b": "caf\u00e9 \ud83d\ude00 \u001b"}'


def allowed(schema: Any, text: str) -> bool:
    """Whether it is an answer by the schema, and as well a tool's arguments."""
    (form,) = json.loads(source(StructuredOutputs(json=json.dumps(schema)), {}))["grammars"]
    answer, arguments = (
        BABBLER.may_write(f"%llguidance {{}}\nstart: %json {json.dumps(compiled)}", text)
        for compiled in (form["json_schema"], constraint(schema, strict=False))
    )
    assert answer == arguments
    return answer


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "object"},
        CAFE,
        {"type": "object", "properties": {"b": {"type": "string"}}, "additionalProperties": False},
        {"type": "object", "properties": {"b": {"type": "string", "maxLength": 8}}},
        {"type": "object", "properties": {"b": {"anyOf": [{"$ref": "#/$defs/t"}, {"type": "null"}]}}}
        | {"$defs": {"t": {"type": "string"}}},
        {"type": "object", "additionalProperties": {"type": "string"}},
    ],
)
def test_any_character_may_be_a_code(schema: Any) -> None:
    assert allowed(schema, PAIRED)
    assert not allowed(schema, PAIRED.replace(r"\ude00", "")), "half a pair"


def test_a_pair_is_one_character() -> None:
    schema = {"type": "string", "minLength": 2, "maxLength": 2}
    assert [allowed(schema, f'"{text}"') for text in (r"\ud83d\ude00", r"\ud83d\ude00b", "abc")] == [
        False,
        True,
        False,
    ]


@pytest.mark.parametrize(
    "schema",
    [
        CAFE,
        TYPED,
        {"allOf": [CAFE, {"type": "object", "properties": {"c": {"type": "null"}}}]},
        {**CAFE, "anyOf": [{"properties": {"c": {"type": "null"}}}, {"required": ["d"]}]},
        {"type": "object", "patternProperties": {"^a": {"type": "integer"}}},
    ],
)
def test_a_key_that_is_listed_has_the_value_of_its_schema(schema: Any) -> None:
    """``"\\u0061"`` is "a": as another key it would have any value."""
    assert allowed(schema, '{"a": 1}') and not allowed(schema, r'{"\u0061": "x"}')
    assert not allowed(schema, r'{"a": 1, "\u0061": "x"}')
    assert allowed(schema, r'{"b\"é": "x"}')


def test_where_keys_may_be_confused_no_character_is_a_code() -> None:
    assert not allowed(TYPED, PAIRED) and allowed(TYPED, '{"b": "café \\n"}')


def test_properties_may_have_the_names_of_keywords() -> None:
    names = {"additionalProperties": {"type": "string"}, "properties": {"type": "object"}}
    schema = {"type": "object", "properties": names, "additionalProperties": False}
    assert for_compiler(schema)[0] == schema
    (inner,) = for_compiler({"anyOf": [{"properties": names}]})[0]["anyOf"]
    assert inner["properties"] == names and inner["patternProperties"] == {"": True}


@pytest.mark.parametrize("schema", [CAFE, TYPED])
def test_what_is_written_is_valid(schema: Any) -> None:
    words = ['"\\u0061": ', "\\u0061", '"a"', '"x"', "\\ud83d", "}"]
    babbler, rng = Babbler((), words=words), random.Random(3)
    grammar = f"%llguidance {{}}\nstart: %json {json.dumps(constraint(schema, strict=True))}"
    written = [text for _ in range(15) if (text := babbler.output(grammar, rng)) is not None]
    assert written
    for text in written:
        Draft202012Validator(schema).validate(json.loads(text))
        text.encode()


@pytest.mark.parametrize(
    ("format", "call"),
    [
        (pythonic(), '[f(a=1, KEY="x")]'),
        (pythonic(), '[f(o={"a": 1, "KEY": "x"})]'),
        (function_gemma(), "<start_function_call>call:f{a:1,KEY:<escape>x<escape>}<end_function_call>"),
        (function_gemma(), "<start_function_call>call:f{o:{a:1,KEY:<escape>x<escape>}}<end_function_call>"),
        (
            qwen3_coder(),
            "<tool_call>\n<function=f>\n<parameter=a>\n1\n</parameter>\n<parameter=KEY>\nx\n</parameter>\n"
            "</function>\n</tool_call>",
        ),
    ],
)
def test_in_other_notations_too(format: Any, call: str) -> None:
    schema: Any = {"type": "object", "properties": {"o": TYPED}} if "o:" in call or "o=" in call else TYPED
    grammar = call_grammar(format, Wanted([Tool("f", schema)], "required"), {})
    assert BABBLER.may_write(grammar, call.replace("KEY", "b"))
    assert not BABBLER.may_write(grammar, call.replace("KEY", "a"))
