"""How JSON may be written by a grammar: its white space, and the escapes of its strings.

Any character may be written as ``\\uXXXX``, as in the JSON that models are trained on. Where only control
characters may, as is the compiler's default, a model that has begun ``caf\\u00e9`` has to go on with one of
them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from turnout.text.output.expressions import compiled_parts

__all__ = ["for_compiler", "parts_of", "with_parts"]

WHITE_SPACE = r"[\x20\x0A\x0D\x09]{1,20}"
"""Between the parts of JSON. The limit ends an output that would otherwise continue with blanks."""
WITHOUT_CODES = 'nrbtf\\"'
"""The escapes, but for ``\\uXXXX``."""
ANY_KEY = ""
"""As a pattern, which is searched."""
BY_NAME = ("properties", "patternProperties", "$defs", "definitions", "dependentSchemas")
LISTS = ("anyOf", "oneOf", "allOf", "prefixItems")
SINGLE = ("items", "additionalProperties", "not", "if", "then", "else", "contains", "propertyNames")

Schema = Mapping[str, Any]


def for_compiler(schema: Any) -> tuple[Any, dict[str, Any]]:
    """Returns a schema that means the same, and the compiler's options for it.

    The compiler tells further keys of an object from those that the schema lists by how they are written, so
    that ``"\\u0061"`` would be another key than ``"a"``, of another schema. Keys by a pattern have no such
    escapes. Where the further keys cannot be put as a pattern, no string may have them. A pattern that the
    compiler has not stays, for it to refuse.
    """
    options: dict[str, Any] = {"whitespace_pattern": WHITE_SPACE}
    schema = with_parts(schema, _expressions)
    if any(_is_open(part) and _confuses_keys(part) for part in parts_of(schema)):
        return schema, {**options, "json_allowed_escapes": WITHOUT_CODES}
    return with_parts(schema, _keys_by_pattern), {**options, "json_allow_general_unicode_escapes": True}


def with_parts(schema: Any, change: Callable[[Schema], dict[str, Any]]) -> Any:
    """A schema in which it and all schemas within it are changed, the outer ones first."""
    if isinstance(schema, list):  # `items` of older drafts
        return [with_parts(item, change) for item in schema]
    if not isinstance(schema, Mapping):
        return schema
    changed = change(schema)
    for key in changed.keys() & {*BY_NAME, *LISTS, *SINGLE}:
        value = changed[key]
        if key in SINGLE:
            changed[key] = with_parts(value, change)
        elif key in LISTS and isinstance(value, list):
            changed[key] = [with_parts(each, change) for each in value]
        elif key in BY_NAME and isinstance(value, Mapping):
            changed[key] = {name: with_parts(each, change) for name, each in value.items()}
    return changed


def parts_of(schema: Any) -> list[Schema]:
    """A schema and all schemas within it, the outer ones first."""
    found: list[Schema] = []

    def look(part: Schema) -> dict[str, Any]:
        found.append(part)
        return dict(part)

    with_parts(schema, look)
    return found


def _is_open(schema: Schema) -> bool:
    """Whether a schema lists properties, or patterns of them, and allows further ones."""
    listed = schema.get("properties") or schema.get("patternProperties")
    return bool(listed) and schema.get("additionalProperties") is not False


def _confuses_keys(schema: Schema) -> bool:
    """Whether further properties have a schema that forbids something, or there are patterns."""
    return bool(schema.get("patternProperties")) or not _allows_any(schema)


def _expressions(schema: Schema) -> dict[str, Any]:
    changed = dict(schema)
    if isinstance(pattern := changed.get("pattern"), str):
        changed["pattern"] = _expression(pattern)
    if isinstance(by_pattern := changed.get("patternProperties"), Mapping):
        written = {_expression(pattern): value for pattern, value in by_pattern.items()}
        if len(written) == len(by_pattern):  # otherwise two are the same, with a schema each
            changed["patternProperties"] = written
    return changed


def _expression(pattern: str) -> str:
    parts = compiled_parts(pattern)
    return pattern if parts is None else "".join(parts)


def _keys_by_pattern(schema: Schema) -> dict[str, Any]:
    if schema.get("properties") and _allows_any(schema):
        return {**schema, "patternProperties": {ANY_KEY: True}, "additionalProperties": False}
    return dict(schema)


def _allows_any(schema: Schema) -> bool:
    """Whether further properties may have any value."""
    others = schema.get("additionalProperties", True)
    return others is True or others == {}
