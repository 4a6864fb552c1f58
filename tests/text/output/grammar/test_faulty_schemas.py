"""Schemas of tools that no grammar can be made of are refused in every format, with a reason, and soon."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

import pytest

from turnout.core.errors import RequestError
from turnout.core.registry.registry import Registry
from turnout.core.types.output_format import OutputFormat
from turnout.text.output.grammar.call_grammar import Wanted, call_form
from turnout.text.output.grammar.faulty_part import tool_rule
from turnout.text.output.tools import Tool

KINDS = ["hermes", "qwen3-coder", "glm-4.5", "pythonic", "functiongemma", "gemma4"]
"""A format of each kind of body."""
OTHERS = KINDS[1:]
"""Those whose arguments are not written as JSON, so that the compiler does not read the schemas."""
SCHEMA = "a schema: an object, or true or false"
TYPES = "one of array, boolean, integer, null, number, object, string, or a list of these"
COUNT = "a whole number that is not negative"
MALFORMED: list[tuple[Mapping[str, Any], str, str]] = [
    ({"type": 5}, "type", TYPES),
    ({"type": "strng"}, "type", TYPES),
    ({"type": ["string", "strng"]}, "type", TYPES),
    ({"type": "object", "properties": [1]}, "properties", "an object of schemas by their names"),
    ({"type": "object", "properties": {"b": 1}}, "properties", "an object of schemas by their names"),
    ({"type": "object", "required": 7}, "required", "a list of names"),
    ({"type": "object", "required": [7]}, "required", "a list of names"),
    ({"type": "object", "additionalProperties": "no"}, "additionalProperties", SCHEMA),
    ({"type": "string", "minLength": "x"}, "minLength", COUNT),
    ({"type": "string", "maxLength": -1}, "maxLength", COUNT),
    ({"type": "string", "pattern": 7}, "pattern", "a text"),
    ({"type": "array", "minItems": 1.5}, "minItems", COUNT),
    ({"type": "array", "maxItems": True}, "maxItems", COUNT),
    ({"type": "array", "items": 3}, "items", "a schema, or a list of schemas"),
    ({"type": "array", "prefixItems": 3}, "prefixItems", "a list of schemas"),
    ({"type": "integer", "minimum": "a"}, "minimum", "a number"),
    ({"enum": 5}, "enum", "a list of values"),
    ({"anyOf": {}}, "anyOf", "a list of schemas"),
    ({"allOf": [3]}, "allOf", "a list of schemas"),
    ({"$ref": 7}, "$ref", "a text"),
]


@pytest.fixture(scope="module")
def formats() -> Mapping[str, OutputFormat]:
    registry = Registry.load()
    return {name: registry.create("format", name) for name in KINDS}


def arguments(schema: Any, **fields: Any) -> dict[str, Any]:
    return {"type": "object", "properties": {"a": schema}, "required": ["a"], **fields}


def refusal(format: OutputFormat, *schemas: Mapping[str, Any]) -> RequestError:
    """Why tools are refused, the last for its schema; and that it doesn't take long."""
    began = time.thread_time()
    with pytest.raises(RequestError) as refused:
        call_form(format, Wanted([Tool(f"f{number}", schema) for number, schema in enumerate(schemas)]), {})
    assert time.thread_time() - began < 5
    return refused.value


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("schema", "keyword", "expected"), MALFORMED)
def test_a_keyword_of_another_kind_is_named(
    formats: Mapping[str, OutputFormat], kind: str, schema: Mapping[str, Any], keyword: str, expected: str
) -> None:
    """They were 500s in formats that are not JSON."""
    wholes = [arguments(schema), arguments({"type": "array", "items": schema})]
    wholes += [{"type": "object", **schema}] if "type" not in schema or schema["type"] == "object" else []
    wholes += [arguments({"$ref": "#/apart/b"}, apart={"b": schema})] if kind != "hermes" else []
    for whole in wholes:
        error = refusal(formats[kind], {"type": "object"}, whole)
        assert str(error).startswith(f"its keyword {keyword!r} should be {expected}, not ")
        assert error.param == tool_rule(1)


@pytest.mark.parametrize("kind", OTHERS)
def test_a_null_and_older_drafts_are_no_faults(formats: Mapping[str, OutputFormat], kind: str) -> None:
    """Libraries whose empty lists are null write `"required": null`."""
    for schema in (
        {"type": "object", "properties": None, "required": None},
        {"type": None, "anyOf": None, "enum": None},
        {"type": "string", "minLength": None, "maxLength": None, "pattern": None},
        {"type": "string", "minLength": 1.0},
        {"type": "array", "minItems": None, "maxItems": None, "prefixItems": None},
        {"type": "array", "items": [{"type": "integer"}, True]},
        {"type": "number", "minimum": 1, "exclusiveMinimum": True},
        {"type": "string", "uniqueItems": "?", "not": 5},
    ):
        assert call_form(formats[kind], Wanted([Tool("f", arguments(schema))]), {}).grammar


@pytest.mark.parametrize("kind", OTHERS)
def test_a_schema_of_too_many_combinations_is_refused_soon(
    formats: Mapping[str, OutputFormat], kind: str
) -> None:
    """1.2 kB took 55 s of a text thread and more, whether or not the client was still there."""
    texts = [{"anyOf": [{"minLength": size} for size in range(10)]}] * 6
    objects = [{"anyOf": [{"minProperties": size} for size in range(10)]}] * 6
    names = [f"p{number}" for number in range(500)]
    wide = {name: {"type": "string"} for name in names}
    defined = {f"d{number}": {"enum": list(range(20))} for number in range(1000)}
    for whole in (
        arguments({"type": "string", "allOf": texts}),
        {"type": "object", "allOf": objects},
        {"type": "object", "allOf": [{"anyOf": [True] * 20_000}] * 2},
        {"type": "object", "properties": wide, "anyOf": [{"required": [name]} for name in names[:200]]},
        arguments({"enum": list(range(5000)), "allOf": texts[:3]}),
        arguments({"type": "string", "pattern": "a" * 5000, "allOf": texts[:3]}),
        *([_referring(defined)] if kind in ("qwen3-coder", "glm-4.5") else []),
    ):
        error = refusal(formats[kind], {"type": "object"}, whole)
        assert "too intricate: its allOf, anyOf, oneOf and $ref make too many" in str(error)
        assert error.param == tool_rule(1)


def _referring(defined: Mapping[str, Any]) -> dict[str, Any]:
    """Arguments each of which refers to the definitions, which then stand in the grammar with it."""
    properties = {f"p{number}": {"$ref": f"#/$defs/d{number}"} for number in range(1000)}
    return {"type": "object", "properties": properties, "$defs": defined}


def test_tools_together_have_a_limit_too(formats: Mapping[str, OutputFormat]) -> None:
    """512 tools, each within its own limit, would take a minute."""
    texts = [{"anyOf": [{"minLength": size} for size in range(10)]}] * 3
    tool = arguments({"type": "string", "allOf": texts})
    assert call_form(formats["glm-4.5"], Wanted([Tool("f", tool)]), {}).grammar
    assert "or offer fewer such tools" in str(refusal(formats["glm-4.5"], *[tool] * 512))


@pytest.mark.parametrize("kind", OTHERS)
def test_what_clients_send_is_far_from_the_limit(formats: Mapping[str, OutputFormat], kind: str) -> None:
    either = {"anyOf": [{"type": "string", "enum": list("abc")}, {"type": "null"}]}
    properties = {f"p{number}": either for number in range(20)}
    inside = {"type": "object", "properties": properties, "required": ["p1"]}
    tool = {"type": "object", "properties": {**properties, "q": {"type": "array", "items": inside}}}
    tools = [Tool(f"f{number}", tool) for number in range(100)]
    assert call_form(formats[kind], Wanted(tools[:3]), {}).grammar
    assert max(each.schemas.steps for each in tools[:3]) < 1000


@pytest.mark.parametrize("kind", ["pythonic", "functiongemma", "gemma4"])
def test_references_that_nest_too_deeply_are_refused(formats: Mapping[str, OutputFormat], kind: str) -> None:
    """The stack that they took ended in a 500."""
    defined: dict[str, Any] = {f"d{i}": arguments({"$ref": f"#/$defs/d{i + 1}"}) for i in range(400)}
    whole = arguments({"$ref": "#/$defs/d0"}, **{"$defs": {**defined, "d400": {"type": "integer"}}})
    error = refusal(formats[kind], {"type": "object"}, whole)
    assert "nested too deeply" in str(error) and error.param == tool_rule(1)
