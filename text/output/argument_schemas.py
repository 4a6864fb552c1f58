"""The schema of a tool's arguments, for formats that write arguments otherwise than as one JSON object."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from itertools import islice
from typing import Any, NamedTuple
from urllib.parse import unquote

from turnout.core.errors import RequestError
from turnout.text.output.schemas import without_descriptions

__all__ = ["ALL_TYPES", "ArgumentSchemas", "Property", "Shape", "given_values", "type_of"]

ALL_TYPES = frozenset({"array", "boolean", "integer", "null", "number", "object", "string"})
UNIONS = ("anyOf", "oneOf")
MOST_SHAPES = 256
"""Ways to write one object that are told apart; a schema with more is too complex."""
MOST_STEPS = 100
"""References that are followed one after the other."""
WHOLE = "-whole"
"""The name of the whole schema among the definitions of a part."""
TYPE_KEYWORDS = {
    "object": ("properties", "required", "additionalProperties"),
    "array": ("items", "prefixItems", "minItems", "maxItems"),
    "string": ("minLength", "maxLength", "pattern", "format"),
    "number": ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"),
}
"""By what a schema that names no type shows the one that it means."""

DEFINITIONS = ("$defs", "definitions")

Schema = Any
"""A JSON schema: an object, or true or false."""


class Property(NamedTuple):
    """A property of an object."""

    name: str
    schema: Schema
    required: bool


class Shape(NamedTuple):
    """The properties that an object has."""

    properties: Sequence[Property]
    others: Schema
    """The schema of further properties; False: there are none."""


class ArgumentSchemas:
    """A schema, and the parts of it that its references name."""

    def __init__(self, whole: Mapping[str, Any]) -> None:
        self.whole: Mapping[str, Any] = without_descriptions(whole)

    @cached_property
    def shapes(self) -> list[Shape]:
        """The ways to write the arguments."""
        return self.shapes_of(self.whole)

    def property(self, name: str) -> Schema:
        """The schema of an argument: of all that the shapes know by this name; {} if none does."""
        found = [each.schema for shape in self.shapes for each in shape.properties if each.name == name]
        return found[0] if len(found) == 1 else {"anyOf": found} if found else {}

    def plain(self, schema: Schema) -> Mapping[str, Any]:
        """A schema without references and `allOf` at its top; `{"not": {}}` if nothing satisfies it."""
        for _ in range(MOST_STEPS):
            if schema is True:
                return {}
            if not isinstance(schema, Mapping):
                return {"not": {}}
            if isinstance(reference := schema.get("$ref"), str):
                others = {key: value for key, value in schema.items() if key != "$ref"}
                schema = _both(self._referred(reference), others)
            elif isinstance(parts := schema.get("allOf"), list):
                merged: Schema = {key: value for key, value in schema.items() if key != "allOf"}
                for part in parts:
                    merged = _both(merged, part)
                schema = merged
            else:
                return schema
        raise _endless()

    def branches(self, schema: Schema, depth: int = 0) -> Iterator[Mapping[str, Any]]:
        """The schemas without a union at their top, one of which a value must satisfy."""
        if depth > MOST_STEPS:
            raise _endless()
        plain = self.plain(schema)
        union = next((name for name in UNIONS if isinstance(plain.get(name), list)), None)
        if union is None:
            yield plain
            return
        others = {key: value for key, value in plain.items() if key != union}
        for branch in plain[union]:
            yield from self.branches(_both(others, branch), depth + 1)

    def types(self, schema: Schema) -> frozenset[str]:
        """The types of the values that a schema allows, as far as it tells them."""
        return frozenset(type for branch in self.branches(schema) for type in _types(branch))

    def shapes_of(self, schema: Schema) -> list[Shape]:
        """The ways to write an object that satisfies a schema."""
        found = list(islice(self._shapes(schema), MOST_SHAPES + 1))
        if len(found) > MOST_SHAPES:
            raise RequestError(
                f"a tool's arguments may have more than {MOST_SHAPES} shapes; simplify its anyOf and oneOf",
                "tools",
            )
        return found

    def alone(self, schema: Schema) -> Any:
        """A part of the schema that stands for itself: what it refers to comes with it."""
        known = {key: self.whole[key] for key in DEFINITIONS if key in self.whole}
        references = [*_references(schema), *_references(list(known.values()))]
        if next(_references(schema), None) is None:
            return schema
        if all(reference.startswith(tuple(f"#/{key}/" for key in known)) for reference in references):
            return {**schema, **known}
        return {**_moved(schema), "$defs": {WHOLE: _moved(self.whole)}}

    def _shapes(self, schema: Schema) -> Iterator[Shape]:
        for branch in self.branches(schema):
            if (values := given_values(branch)) is not None:
                for value in values:
                    if isinstance(value, Mapping):
                        yield Shape([Property(key, {"const": v}, True) for key, v in value.items()], False)
            elif "object" in _types(branch):
                yield _shape(branch)

    def _referred(self, reference: str) -> Schema:
        found: Any = self.whole
        for name in reference.removeprefix("#").split("/")[1:]:
            name = unquote(name).replace("~1", "/").replace("~0", "~")
            try:
                found = found[int(name) if isinstance(found, list) else name]
            except (KeyError, IndexError, TypeError, ValueError):
                found = None
            if found is None:
                break
        if found is None or not reference.startswith("#") or reference[1:2] not in ("", "/"):
            raise RequestError(
                f"the schema of a tool's arguments refers to {reference!r}, which is not in it", "tools"
            )
        return found


def type_of(value: Any) -> str:
    """The JSON type of a value; a whole number is an integer."""
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, str):
        return "string"
    if isinstance(value, int):
        return "integer"
    if isinstance(value, float):
        return "number"
    return "null" if value is None else "array" if isinstance(value, list) else "object"


def _endless() -> RequestError:
    return RequestError("the schema of a tool's arguments refers to itself endlessly", "tools")


def _types(branch: Mapping[str, Any]) -> frozenset[str]:
    if "not" in branch and branch["not"] in ({}, True):
        return frozenset()
    if (values := given_values(branch)) is not None:
        return frozenset(map(type_of, values))
    if named := _named_types(branch):
        return named
    meant = [type for type, keywords in TYPE_KEYWORDS.items() if any(word in branch for word in keywords)]
    return frozenset(meant) or ALL_TYPES


def given_values(branch: Mapping[str, Any]) -> list[Any] | None:
    """The values that a schema lists; None: it lists none."""
    values = [branch["const"]] if "const" in branch else branch.get("enum")
    if not isinstance(values, list):
        return None
    named = _named_types(branch)
    if "number" in named:
        named |= {"integer"}
    return [value for value in values if not named or type_of(value) in named]


def _named_types(branch: Mapping[str, Any]) -> frozenset[str]:
    named = branch.get("type", ())
    return frozenset([named] if isinstance(named, str) else named)


def _shape(branch: Mapping[str, Any]) -> Shape:
    known = branch.get("properties") or {}
    required = [name for name in branch.get("required") or () if isinstance(name, str)]
    # A schema that lists properties and says nothing of others means that there are none.
    others = branch.get("additionalProperties", "properties" not in branch)
    properties = [Property(name, schema, name in required) for name, schema in known.items()]
    rest = {} if others is False else others
    properties += [Property(name, rest, True) for name in dict.fromkeys(required) if name not in known]
    return Shape(properties, False if properties and others is True else others)


def _both(one: Schema, other: Schema) -> Schema:
    """A schema that holds what both hold, as far as keywords can be joined; the other's win."""
    if one is False or other is False:
        return False
    if not isinstance(one, Mapping) or not isinstance(other, Mapping):
        return one if isinstance(one, Mapping) else other
    joined = {**one, **other}
    for key in one.keys() & other.keys():
        mine, theirs = one[key], other[key]
        if key in ("properties", "$defs") and isinstance(mine, Mapping) and isinstance(theirs, Mapping):
            joined[key] = {**mine, **theirs}
        elif key == "required" and isinstance(mine, list) and isinstance(theirs, list):
            joined[key] = list(dict.fromkeys([*mine, *theirs]))
        elif key in (*UNIONS, "allOf") and isinstance(mine, list) and isinstance(theirs, list):
            joined[key] = [{"allOf": [a, b]} for a in mine for b in theirs]
    return joined


def _references(schema: Schema) -> Iterator[str]:
    values: list[Any] = [schema]
    while values:
        value = values.pop()
        if isinstance(value, Mapping):
            if isinstance(reference := value.get("$ref"), str):
                yield reference
            values += value.values()
        elif isinstance(value, list):
            values += value


def _moved(schema: Schema) -> Any:
    """A schema whose references begin at the whole schema's new place."""
    if isinstance(schema, list):
        return [_moved(each) for each in schema]
    if not isinstance(schema, Mapping):
        return schema
    moved = {key: _moved(value) for key, value in schema.items()}
    if isinstance(reference := schema.get("$ref"), str) and reference.startswith("#"):
        moved["$ref"] = f"#/$defs/{WHOLE}{reference[1:]}"
    return moved
