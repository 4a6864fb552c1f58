"""The grammar of calls whose arguments stand between tags."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from turnout.core.errors import RequestError
from turnout.core.types.output_format import XmlCall
from turnout.text.output.argument_schemas import Shape, given_values
from turnout.text.output.grammar.grammar_rules import GrammarRules, literal
from turnout.text.output.grammar.string_forms import string_form
from turnout.text.output.grammar.value_grammar import bare_key, check_held
from turnout.text.output.schemas import constraint
from turnout.text.output.tools import Tool

__all__ = ["XmlGrammar"]

NULL = "/\\s*(null|None)\\s*/"
"""What would be read as null."""
BEGINNINGS = {
    **dict.fromkeys(("integer", "number"), r"0-9\-"),
    **{"array": r"\[", "object": r"\{", "boolean": "tfTF", "null": "nN", "string": r'"\s\x1c-\x1f'},
}
"""The characters that begin the JSON of values of a type, as in a class of a regular expression."""


@dataclass
class XmlGrammar:
    """Adds rules for the arguments of one tool."""

    rules: GrammarRules
    body: XmlCall
    tool: Tool

    def arguments(self) -> str:
        """An expression for the arguments."""
        if self.tool.strict:
            check_held(self.tool.schemas.plain(self.tool.schemas.whole))
        return "(" + " | ".join(map(self._shape, self.tool.shapes)) + ")"

    def _shape(self, shape: Shape) -> str:
        parts = []
        for each in shape.properties:
            part = self._argument(each.name, each.schema)
            if part is not None:
                parts.append(f"(space {part})" + ("" if each.required else "?"))
            elif each.required:
                raise RequestError(
                    f"the argument {each.name!r} of the tool {self.tool.name!r} is required, but cannot be "
                    "written in the model's format",
                    "tools",
                )
        if shape.others is not False:
            before, after = map(literal, self.body.key)
            key = f"{before} {bare_key(self.rules, shape)} {after}"
            parts.append(f"(space {key} {self._value(shape.others)})*")
        return self.rules.named(" ".join(parts) or '""')

    def _argument(self, name: str, schema: Any) -> str | None:
        """An expression for an argument; None: it cannot be written."""
        before, after = self.body.key
        if after in name or name != name.strip():
            return None
        return f"{literal(before + name + after)} {self._value(schema)}"

    def _value(self, schema: Any) -> str:
        line = "\n" if self.body.lines else ""
        opening = f"space {literal(self.body.value[0])}" if self.body.value[0] else ""
        ways = list(dict.fromkeys(self._ways(schema, line + self.body.value[1])))
        return f"{opening} {literal(line) if line else ''} {self.rules.named(' | '.join(ways))}"

    def _ways(self, schema: Any, end: str) -> Iterator[str]:
        """The ways to write a value, and what ends it."""
        types = self.tool.schemas.types(schema)
        if "string" not in types or not types <= {"string", "null"}:
            part = constraint(self._alone(schema), strict=self.tool.strict)
            yield f"{self.rules.named(f'%json {literal(part)}')} space {literal(end.strip())}"
            if "string" in types:
                yield from self._bare_strings(schema, end, types)
            if self.body.lines:
                yield from self._as_python_prints(schema, end)
            return
        if "null" in types:
            yield literal("null" + end)
            yield literal("None" + end)
        for branch in self.tool.schemas.branches(schema):
            yield from self._strings(branch, end, nothing="null" in types)

    def _as_python_prints(self, schema: Any, end: str) -> Iterator[str]:
        """Qwen3-Coder's template prints what is neither text nor a list nor an object."""
        for branch in self.tool.schemas.branches(schema):
            values = given_values(branch)
            if values is None:
                types = self.tool.schemas.types(branch)
                values = [True, False] * ("boolean" in types) + [None] * ("null" in types)
            yield from (
                literal(f"{value}{end}")
                for value in values
                if value is None or value is True or value is False
            )

    def _bare_strings(self, schema: Any, end: str, types: frozenset[str]) -> Iterator[str]:
        """The ways to write a string that cannot be a value of another type: it begins as none of them does.

        Such strings, too, models write as they stand.
        """
        told = f"([^{''.join(BEGINNINGS[type] for type in sorted(types))}](?s:.)*)?"
        for branch in self.tool.schemas.branches(schema):
            if (values := given_values(branch)) is not None:
                texts = [value for value in values if isinstance(value, str) and re.fullmatch(told, value)]
                yield from (literal(text + end) for text in texts if self.body.value[1] not in text)
            elif "string" in self.tool.schemas.types(branch):
                with suppress(RequestError):  # what cannot be held of it can be between quotes
                    form = f"({string_form(branch, strict=True)}) & /{told}/"
                    yield self.rules.string_up_to(form, end, without=self.body.value[1])

    def _strings(self, branch: Mapping[str, Any], end: str, *, nothing: bool) -> Iterator[str]:
        """The ways to write a string. nothing: the value may be null, so that no string may look like it."""
        values = given_values(branch)
        if values is not None:
            texts = [value for value in values if isinstance(value, str) and self.body.value[1] not in value]
            yield from (literal(text + end) for text in texts if not nothing or text not in ("null", "None"))
        elif "string" in self.tool.schemas.types(branch):
            form = string_form(branch, strict=self.tool.strict)
            form = f"({form}) & ~{NULL}" if nothing else form
            yield self.rules.string_up_to(form, end, without=self.body.value[1])

    def _alone(self, schema: Any) -> Mapping[str, Any]:
        alone = self.tool.schemas.alone(schema)
        return alone if isinstance(alone, Mapping) else {} if alone else {"not": {}}
