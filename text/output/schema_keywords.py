"""The keywords of a JSON schema whose values must be of one kind, as grammars read them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from turnout.core.errors import RequestError
from turnout.text.output.json_notation import parts_of

__all__ = ["ALL_TYPES", "check_keywords"]

ALL_TYPES = frozenset({"array", "boolean", "integer", "null", "number", "object", "string"})


class Kind(NamedTuple):
    """What the value of a keyword may be."""

    name: str
    """As a message names it."""
    has: Callable[[Any], bool]


def check_keywords(schema: Any) -> None:
    """Raises RequestError for a keyword whose value is none of its kind, in a schema or within it.

    A null stands for no keyword: some libraries write what is empty so. What no grammar reads is not checked.
    """
    for part in parts_of(schema):
        for key, value in part.items():
            kind = KEYWORDS.get(key)
            if kind is not None and value is not None and not kind.has(value):
                raise RequestError(f"its keyword {key!r} should be {kind.name}, not {value!r:.80}", "tools")


def _is_schema(value: Any) -> bool:
    return isinstance(value, Mapping | bool)


def _are_schemas(value: Any) -> bool:
    return isinstance(value, list) and all(map(_is_schema, value))


def _are_named_schemas(value: Any) -> bool:
    return isinstance(value, Mapping) and all(map(_is_schema, value.values()))


def _are_types(value: Any) -> bool:
    return all(isinstance(each, str) and each in ALL_TYPES for each in _listed(value))


def _are_texts(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(each, str) for each in value)


def _is_count(value: Any) -> bool:
    return _is_number(value) and value >= 0 and value == value // 1


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


SCHEMA = Kind("a schema: an object, or true or false", _is_schema)
SCHEMAS = Kind("a list of schemas", _are_schemas)
NAMED_SCHEMAS = Kind("an object of schemas by their names", _are_named_schemas)
COUNT = Kind("a whole number that is not negative", _is_count)
NUMBER = Kind("a number", _is_number)
TEXT = Kind("a text", lambda value: isinstance(value, str))

KEYWORDS: Mapping[str, Kind] = {
    "type": Kind(f"one of {', '.join(sorted(ALL_TYPES))}, or a list of these", _are_types),
    "enum": Kind("a list of values", lambda value: isinstance(value, list)),
    **dict.fromkeys(("anyOf", "oneOf", "allOf", "prefixItems"), SCHEMAS),
    **dict.fromkeys(("properties", "patternProperties"), NAMED_SCHEMAS),
    "additionalProperties": SCHEMA,
    "items": Kind("a schema, or a list of schemas", lambda value: _is_schema(value) or _are_schemas(value)),
    "required": Kind("a list of names", _are_texts),
    **dict.fromkeys(("minItems", "maxItems", "minLength", "maxLength"), COUNT),
    **dict.fromkeys(("minimum", "maximum", "multipleOf"), NUMBER),
    # Older drafts have true or false beside the bound.
    **dict.fromkeys(
        ("exclusiveMinimum", "exclusiveMaximum"),
        Kind("a number, or true or false", lambda value: isinstance(value, int | float)),
    ),
    **dict.fromkeys(("pattern", "format", "$ref"), TEXT),
}
