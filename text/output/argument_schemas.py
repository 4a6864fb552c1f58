"""The schema of a tool's arguments, for formats that write arguments otherwise than as one JSON object."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property
from itertools import islice
from typing import Any, NamedTuple
from urllib.parse import unquote

from turnout.core.errors import RequestError
from turnout.text.output.schema_keywords import ALL_TYPES, check_keywords
from turnout.text.output.schemas import without_descriptions

__all__ = ["ArgumentSchemas", "Property", "Shape", "given_values", "type_of"]

UNIONS = ("anyOf", "oneOf")
MOST_SHAPES = 256
"""Ways to write one object that are told apart; a schema with more is too complex."""
MOST_REFERENCES = 100
"""References that are followed one after the other."""
PARTS_A_STEP = 10
"""Parts of a schema that take as long as a step to be written as a grammar."""
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
        self.steps = 0
        """Steps that resolving it has taken in the last block of `limited`."""
        self._most_steps = math.inf
        self._known: dict[str, Schema] = {}
        """What the references that were followed refer to."""

    @contextmanager
    def limited(self, steps: int) -> Iterator[None]:
        """Raises RequestError in the block once resolving the schema takes more than so many steps.

        A few lines of `allOf` and `anyOf` have millions of combinations. A step takes some microseconds.
        """
        self.steps, self._most_steps = 0, steps
        try:
            yield
        finally:
            self._most_steps = math.inf

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
        for _ in range(MOST_REFERENCES):
            if schema is True:
                return {}
            if not isinstance(schema, Mapping):
                return {"not": {}}
            if isinstance(reference := schema.get("$ref"), str):
                others = {key: value for key, value in schema.items() if key != "$ref"}
                schema = self._both(self._referred(reference), others)
            elif isinstance(parts := schema.get("allOf"), list):
                merged: Schema = {key: value for key, value in schema.items() if key != "allOf"}
                for part in parts:
                    merged = self._both(merged, part)
                schema = merged
            else:
                return schema
        raise _endless()

    def branches(self, schema: Schema, depth: int = 0) -> Iterator[Mapping[str, Any]]:
        """The schemas without a union at their top, one of which a value must satisfy."""
        if depth > MOST_REFERENCES:
            raise _endless()
        plain = self.plain(schema)
        union = next((name for name in UNIONS if isinstance(plain.get(name), list)), None)
        if union is None:
            self._take(1 + _size(plain) // PARTS_A_STEP)
            yield plain
            return
        others = {key: value for key, value in plain.items() if key != union}
        for branch in plain[union]:
            yield from self.branches(self._both(others, branch), depth + 1)

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
        if next(_references(schema), None) is None:
            return schema
        self._take(_size(self.whole) // PARTS_A_STEP)
        known = {key: self.whole[key] for key in DEFINITIONS if key in self.whole}
        references = [*_references(schema), *_references(list(known.values()))]
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
                shape = _shape(branch)
                self._take(len(shape.properties))
                yield shape

    def _both(self, one: Schema, other: Schema) -> Schema:
        """A schema that holds what both hold, as far as keywords can be joined; the other's win."""
        if one is False or other is False:
            return False
        if not isinstance(one, Mapping) or not isinstance(other, Mapping):
            return one if isinstance(one, Mapping) else other
        self._take(1 + (len(one) + len(other)) // PARTS_A_STEP)
        joined = {**one, **other}
        for key in one.keys() & other.keys():
            mine, theirs = one[key], other[key]
            if key in ("properties", "$defs") and isinstance(mine, Mapping) and isinstance(theirs, Mapping):
                self._take((len(mine) + len(theirs)) // PARTS_A_STEP)
                joined[key] = {**mine, **theirs}
            elif key == "required" and isinstance(mine, list) and isinstance(theirs, list):
                self._take((len(mine) + len(theirs)) // PARTS_A_STEP)
                joined[key] = list(dict.fromkeys([*mine, *theirs]))
            elif key in (*UNIONS, "allOf") and isinstance(mine, list) and isinstance(theirs, list):
                self._take(len(mine) * len(theirs))
                joined[key] = [{"allOf": [a, b]} for a in mine for b in theirs]
        return joined

    def _take(self, steps: int) -> None:
        """Counts steps ahead of their work."""
        self.steps += steps
        if self.steps > self._most_steps:
            raise RequestError(
                "the schema is too intricate: its allOf, anyOf, oneOf and $ref make too many combinations; "
                "simplify these, or offer fewer such tools at once",
                "tools",
            )

    def _referred(self, reference: str) -> Schema:
        if reference not in self._known:
            found = self._known[reference] = self._found(reference)
            self._take(_size(found) // PARTS_A_STEP)
            check_keywords(found)  # what is under no keyword of a schema was not checked with the whole
        return self._known[reference]

    def _found(self, reference: str) -> Schema:
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
    named = branch.get("type") or ()
    return frozenset([named] if isinstance(named, str) else named)


def _shape(branch: Mapping[str, Any]) -> Shape:
    known = branch.get("properties") or {}
    # An order is kept: it is that of the properties.
    required = dict.fromkeys(branch.get("required") or ())
    # A schema that lists properties and says nothing of others means that there are none.
    others = branch.get("additionalProperties", "properties" not in branch)
    properties = [Property(name, schema, name in required) for name, schema in known.items()]
    rest = {} if others is False else others
    properties += [Property(name, rest, True) for name in required if name not in known]
    return Shape(properties, False if properties and others is True else others)


def _references(schema: Schema) -> Iterator[str]:
    for value in _inside(schema):
        if isinstance(value, Mapping) and isinstance(reference := value.get("$ref"), str):
            yield reference


def _size(schema: Schema) -> int:
    """How many values are in a schema; a long text counts as several."""
    return sum(1 + len(value) // 4 if isinstance(value, str) else 1 for value in _inside(schema))


def _inside(schema: Schema) -> Iterator[Any]:
    """A schema and all values within it."""
    values: list[Any] = [schema]
    while values:
        value = values.pop()
        yield value
        if isinstance(value, Mapping):
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
