"""JSON schemas as grammars take them: without what only describes, and for objects alone."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from turnout.core.errors import RequestError
from turnout.core.types.structured_outputs import StructuredOutputs
from turnout.text.output.held_keywords import check_numbers, loosened, narrowed
from turnout.text.output.json_notation import for_compiler, with_parts

__all__ = ["answer_expression", "constraint", "without_descriptions"]

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
SLASHES = re.compile(r"(\\[^/])|\\?/", re.DOTALL)
"""What is escaped, such as a backslash before a slash; or a slash, which may be escaped already."""


def constraint(schema: Mapping[str, Any], *, strict: bool) -> dict[str, Any]:
    """Returns the schema for the compiler.

    strict: keywords that the compiler does not know are refused; otherwise they hold nothing. Raises
    RequestError, if strict, for numbers that would become others.
    """
    bare = without_descriptions(schema)
    if strict:
        try:
            check_numbers(bare)
        except ValueError as error:
            raise RequestError(f"the JSON schema cannot be held: {error}", "structured_outputs") from None
    compiled, options = for_compiler(narrowed(bare if strict else loosened(bare)))
    if not strict:
        options["lenient"] = True
    return {**compiled, "x-guidance": options}


def answer_expression(form: StructuredOutputs) -> str | None:
    """A form as an expression within a larger grammar; None for a grammar, which is no part of another."""
    if form.json is not None or form.json_object:
        schema = _read(form.json) if isinstance(form.json, str) else form.json or {"type": "object"}
        return "%json " + json.dumps(constraint(schema, strict=True), ensure_ascii=False)
    if form.choice is not None:
        return "(" + " | ".join(json.dumps(text, ensure_ascii=False) for text in form.choice) + ")"
    if form.regex is not None:
        return "/" + SLASHES.sub(lambda found: found[1] or r"\/", form.regex) + "/"
    return None


def without_descriptions(schema: Any) -> Any:
    """A schema without the keywords that forbid nothing."""

    def bare(part: Mapping[str, Any]) -> dict[str, Any]:
        return {key: value for key, value in part.items() if key not in DESCRIBING}

    return with_parts(schema, bare)


def _read(schema: str) -> Any:
    """A schema that came as text. Raises RequestError."""
    try:
        found = json.loads(schema)
    except (ValueError, RecursionError) as error:
        raise RequestError(f"the JSON schema is not valid JSON: {error}", "structured_outputs") from None
    if not isinstance(found, dict):
        raise RequestError("the JSON schema should be an object", "structured_outputs")
    return found
