"""JSON schemas as grammars take them: without what only describes, and for objects alone."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from turnout.core.errors import RequestError
from turnout.core.types.structured_outputs import StructuredOutputs

__all__ = ["WHITE_SPACE", "answer_expression", "constraint", "without_descriptions"]

DESCRIBING = frozenset(
    {
        "title",
        "description",
        "default",
        "examples",
        "example",
        "deprecated",
        "readOnly",
        "writeOnly",
        "$comment",
        "$schema",
        "$id",
    }
)
"""Keywords that forbid nothing. They may be long, and a form's size is bounded."""
SCHEMAS_BY_NAME = ("properties", "patternProperties", "$defs", "definitions", "dependentSchemas")
SCHEMA_LISTS = ("anyOf", "oneOf", "allOf", "prefixItems")
WHITE_SPACE = r"[\x20\x0A\x0D\x09]{1,20}"
"""Between the parts of JSON. The limit ends an output that would otherwise continue with blanks."""


def constraint(schema: Mapping[str, Any], *, strict: bool) -> dict[str, Any]:
    """Returns the schema for the compiler.

    strict: keywords that the compiler does not know are refused; otherwise they hold nothing.
    """
    options: dict[str, Any] = {"whitespace_pattern": WHITE_SPACE}
    if not strict:
        options["lenient"] = True
    return {**without_descriptions(schema), "x-guidance": options}


def answer_expression(form: StructuredOutputs) -> str | None:
    """A form as an expression within a larger grammar; None for a grammar, which is no part of another."""
    if form.json is not None or form.json_object:
        schema = _read(form.json) if isinstance(form.json, str) else form.json or {"type": "object"}
        return "%json " + json.dumps(constraint(schema, strict=True), ensure_ascii=False)
    if form.choice is not None:
        return "(" + " | ".join(json.dumps(text, ensure_ascii=False) for text in form.choice) + ")"
    if form.regex is not None:
        return "/" + form.regex.replace("/", r"\/") + "/"
    return None


def without_descriptions(schema: Any) -> Any:
    """A schema without the keywords that forbid nothing."""
    if isinstance(schema, list):  # `items` of older drafts
        return [without_descriptions(item) for item in schema]
    if not isinstance(schema, Mapping):
        return schema
    kept: dict[str, Any] = {}
    for key, value in schema.items():
        if key in DESCRIBING:
            continue
        if key in SCHEMAS_BY_NAME and isinstance(value, Mapping):
            kept[key] = {name: without_descriptions(each) for name, each in value.items()}
        elif key in SCHEMA_LISTS and isinstance(value, list):
            kept[key] = [without_descriptions(each) for each in value]
        elif key in (
            "items",
            "additionalProperties",
            "not",
            "if",
            "then",
            "else",
            "contains",
            "propertyNames",
        ):
            kept[key] = without_descriptions(value)
        else:
            kept[key] = value
    return kept


def _read(schema: str) -> Any:
    """A schema that came as text. Raises RequestError."""
    try:
        found = json.loads(schema)
    except (ValueError, RecursionError) as error:
        raise RequestError(f"the JSON schema is not valid JSON: {error}", "structured_outputs") from None
    if not isinstance(found, dict):
        raise RequestError("the JSON schema should be an object", "structured_outputs")
    return found
