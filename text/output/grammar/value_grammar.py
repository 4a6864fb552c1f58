"""The grammar of values in a notation that is not JSON, by their schema."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import takewhile
from typing import Any

from turnout.core.errors import RequestError
from turnout.core.types.output_format import Notation
from turnout.text.output.argument_schemas import Property, Shape, given_values
from turnout.text.output.grammar.grammar_rules import GrammarRules, literal
from turnout.text.output.grammar.string_forms import string_form
from turnout.text.output.schemas import constraint
from turnout.text.output.tools import Tool

__all__ = ["ValueGrammar", "bare_key", "check_held", "sequence_of"]

HELD = {
    "string": ("minLength", "maxLength", "pattern", "format"),
    "number": ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"),
}
NOT_HELD = (
    *("patternProperties", "propertyNames", "minProperties", "maxProperties", "dependentRequired"),
    *("dependentSchemas", "if", "not", "contains", "uniqueItems"),
    *("unevaluatedProperties", "unevaluatedItems"),
)
"""Keywords that restrict a value, and that no grammar here holds."""
BARE_KEY = r"/[A-Za-z_][A-Za-z0-9_]{0,63}/"
KEY = r'/"([^"\\\x00-\x1f\x7f]|\\["\\bfnrt])*"/'
"""A key between quotes, which can be written in one way only."""


@dataclass
class ValueGrammar:
    """Adds rules for the values of one tool's arguments."""

    rules: GrammarRules
    tool: Tool
    notation: Notation
    _known: dict[str, str | None] = field(default_factory=dict)
    """The rules of schemas by their texts."""

    def arguments(self) -> str:
        """An expression for the arguments as an object."""
        return f"({' | '.join(map(self.object, self.tool.shapes))})"

    def keywords(self) -> str:
        """An expression for the arguments as keyword arguments."""
        ways = []
        for shape in self.tool.shapes:
            pairs = list(self._pairs(shape.properties, "="))
            others = None
            if shape.others is not False and (value := self.value(shape.others)) is not None:
                others = f'{bare_key(self.rules, shape)} "=" space {value}'
            ways.append(sequence_of(self.rules, pairs, others))
        return f"({' | '.join(ways)})"

    def value(self, schema: Any) -> str | None:
        """The name of a rule for the values that satisfy a schema; None: there are none."""
        text = literal(schema)
        if text not in self._known:
            name = self._known[text] = self.rules.reserved()  # the schema may contain itself
            ways = list(dict.fromkeys(self._ways(schema)))
            self.rules.add(name, " | ".join(ways) or literal("\0"))
            if not ways:
                self._known[text] = None
        return self._known[text]

    def object(self, shape: Shape) -> str:
        """An expression for an object of a shape."""
        pairs = list(self._pairs(shape.properties))
        others = self._other_pair(shape)
        return f'"{{" space {sequence_of(self.rules, pairs, others)} space "}}"'

    # -------------------------------------------------------------- values

    def _ways(self, schema: Any) -> Iterator[str]:
        """The ways to write a value."""
        for branch in self.tool.schemas.branches(schema):
            if self.tool.strict:
                check_held(branch)
            if (values := given_values(branch)) is not None:
                yield from (text for value in values if (text := self._fixed(value)) is not None)
            else:
                for type in sorted(self.tool.schemas.types(branch)):
                    yield from self._of_type(type, branch)

    def _of_type(self, type: str, branch: Mapping[str, Any]) -> Iterator[str]:
        match type:
            case "null":
                # Templates for which nothing is no case of its own print it as Python does.
                yield from map(literal, dict.fromkeys([self.notation.null, "None"]))
            case "boolean":
                yield f"({literal(self.notation.true)} | {literal(self.notation.false)})"
            case "string":
                yield self._string(branch)
            case "integer" | "number":
                kept = {key: branch[key] for key in HELD["number"] if key in branch}
                yield self._json({"type": type, **kept})
            case "array":
                yield from self._array(branch)
            case "object":
                yield from map(self.object, self.tool.schemas.shapes_of({**branch, "type": "object"}))

    def _string(self, branch: Mapping[str, Any]) -> str:
        if not self.notation.quote:
            kept = {key: branch[key] for key in HELD["string"] if key in branch}
            return self._json({"type": "string", **kept})
        quote = self.notation.quote
        form = string_form(branch, strict=self.tool.strict)
        return f"{self.rules.marker(quote)} {self.rules.string_up_to(form, quote)}"

    def _json(self, schema: Mapping[str, Any]) -> str:
        return self.rules.named(f"%json {literal(constraint(schema, strict=self.tool.strict))}")

    def _array(self, branch: Mapping[str, Any]) -> Iterator[str]:
        least = int(branch.get("minItems") or 0)
        most = None if branch.get("maxItems") is None else int(branch["maxItems"])
        first, rest = branch.get("prefixItems") or (), branch.get("items", {})
        if isinstance(rest, list):  # of older drafts
            first, rest = rest, branch.get("additionalItems", {})
        found = [self.value(schema) for schema in first[:most]]
        elements = [each for each in takewhile(bool, found) if each]
        reached = len(elements) == len(first) and (most is None or most > len(first))
        item = self.value(rest) if reached else None
        if item is None:
            most = len(elements)
        if most is None or least <= most:
            yield f'"[" space {_items(elements, item, least, most)} space "]"'

    # -------------------------------------------------------------- keys, and fixed values

    def _pairs(self, properties: Sequence[Property], equals: str = ":") -> Iterator[tuple[str, bool]]:
        for each in properties:
            key = self._key(each.name) if equals == ":" else _keyword(each.name)
            value = self.value(each.schema)
            if key is not None and value is not None:
                yield f"{key} space {literal(equals)} space {value}", each.required
            elif each.required:
                raise RequestError(
                    f"the property {each.name!r} of a tool's arguments is required, but cannot be written in "
                    "the model's format",
                    "tools",
                )

    def _other_pair(self, shape: Shape) -> str | None:
        if shape.others is False or (value := self.value(shape.others)) is None:
            return None
        if self.notation.bare_keys:
            key = bare_key(self.rules, shape)
        elif shape.properties:
            key = _key_of_others(self.rules, KEY, [literal(each.name) for each in shape.properties])
        else:
            key = self._string({})
        return f'{key} space ":" space {value}'

    def _key(self, name: str) -> str | None:
        """A key as it is written; None: it cannot be."""
        if not self.notation.bare_keys:
            return self._fixed(name)
        begins_otherwise = name.startswith(tuple(filter(None, (self.notation.quote, '"', "'"))))
        readable = name == name.strip() and not begins_otherwise and ":" not in name and "}" not in name
        return literal(name) if readable else None

    def _fixed(self, value: Any) -> str | None:
        """A value that a schema gives, as it is written; None: it cannot be."""
        quote = self.notation.quote
        if isinstance(value, str) and quote:
            text = literal(value) if value else ""
            return None if quote in value else f"{self.rules.marker(quote)} {text} {self.rules.marker(quote)}"
        if isinstance(value, Mapping):
            keys = [self._key(key) for key in value]
            values = [self._fixed(each) for each in value.values()]
            pairs = [
                None if None in pair else f'{pair[0]} ":" space {pair[1]}'
                for pair in zip(keys, values, strict=True)
            ]
            return self._enclosed("{", pairs, "}")
        if isinstance(value, list):
            return self._enclosed("[", [self._fixed(each) for each in value], "]")
        named = {True: self.notation.true, False: self.notation.false, None: self.notation.null}
        if value is None or isinstance(value, bool):
            return literal(named[value])
        return literal(literal(value))

    def _enclosed(self, start: str, parts: Sequence[str | None], end: str) -> str | None:
        if None in parts:
            return None
        between = ' "," space '
        return f"{literal(start)} {between.join(filter(None, parts))} {literal(end)}"


def sequence_of(rules: GrammarRules, parts: Sequence[tuple[str, bool]], others: str | None) -> str:
    """An expression for parts in this order with commas between them, those left out that are not needed.

    parts: each with whether it is needed. others: what may come any number of times behind them.
    """
    behind = f'(space "," space {others})*' if others else ""
    ways = [f"{others} {behind}"] if others else []
    for part, needed in reversed(parts):
        way = f"{part} {behind}"
        ways = [way] if needed else [way, *ways]
        with_comma = f'space "," space {part}'
        behind = rules.named(f"{with_comma} {behind}" if needed else f"({with_comma})? {behind}")
    if not ways:
        return ""
    return f"({' | '.join(ways)}){'' if any(needed for _, needed in parts) else '?'}"


def bare_key(rules: GrammarRules, shape: Shape) -> str:
    """The name of a terminal for the keys of further properties, without quotes."""
    return _key_of_others(rules, BARE_KEY, [each.name for each in shape.properties])


def _key_of_others(rules: GrammarRules, form: str, listed: Sequence[str]) -> str:
    """listed: the keys of the properties that have schemas of their own, as they are written."""
    others = f"{form} & ~({' | '.join(map(literal, listed))})" if listed else form
    return rules.named(others, terminal=True)


def _keyword(name: str) -> str | None:
    """The name of an argument as it is written; None: it cannot be."""
    readable = name == name.strip() and not any(mark in name for mark in "=,)")
    return literal(name) if readable else None


def check_held(branch: Mapping[str, Any]) -> None:
    """Raises RequestError for a keyword of a strict tool that no grammar holds."""
    if found := next((key for key in NOT_HELD if key in branch and branch[key] is not False), None):
        raise RequestError(
            f"the keyword {found!r} of a strict tool cannot be held in the model's format", "tools"
        )


def _items(elements: Sequence[str], item: str | None, least: int, most: int | None) -> str:
    """An expression for the items of an array: `elements`, then any number of `item`."""
    if not elements:
        return _alike(item, least, most) if item is not None and most != 0 else ""
    before = len(elements)
    tail = ""
    if item is not None and most != before:
        high = "" if most is None else most - before
        tail = f'(space "," space {item}){{{max(0, least - before)},{high}}}'
    for number in range(before, 1, -1):
        part = f'space "," space {elements[number - 1]} {tail}'
        tail = part if least >= number else f"({part})?"
    return f"({elements[0]} {tail}){'' if least else '?'}"


def _alike(item: str, least: int, most: int | None) -> str:
    high = "" if most is None else most - 1
    more = f'(space "," space {item}){{{max(0, least - 1)},{high}}}' if high != 0 else ""
    return f"({item} {more}){'' if least else '?'}"
