"""Which part of a grammar with calls a compiler has refused."""

from __future__ import annotations

import re
from typing import NamedTuple

from turnout.text.output.grammar.grammar_rules import SHARED

__all__ = ["FaultyPart", "faulty_part", "tool_of_rule", "tool_rule"]

PLACE = re.compile(
    r"at (?P<line>\d+)\(\d+\): (failed to compile JSON schema: )?(?P<reason>.*?)(\n *\d+ \| .*)?", re.DOTALL
)
"""How llguidance's messages begin and end: with the line, and with the lines around it."""
RULE = re.compile(r"(?P<name>tool_(?P<number>\d+))(:.*)?")


class FaultyPart(NamedTuple):
    """A tool's calls, or the rest of the grammar."""

    tool: str | None
    """The rule of the tool's calls; None: it is no tool's part."""
    reason: str


def tool_rule(number: int) -> str:
    """The name of the rule of a tool's calls. The rules that it alone needs stand before it.

    number: its index in `Wanted.tools`.
    """
    return f"tool_{number}"


def tool_of_rule(name: str) -> int | None:
    """The number of a tool by `tool_rule`; None for another name."""
    found = RULE.fullmatch(name)
    return None if found is None else int(found["number"])


def faulty_part(grammar: str, error: str) -> FaultyPart | None:
    """Returns the part that has the line of the compiler's message.

    None if the message names no line, or the grammar is none of `GrammarRules`.
    """
    found = PLACE.fullmatch(error)
    if found is None or not grammar.endswith("\n".join([*SHARED, ""])):
        return None
    rest = grammar.splitlines()[int(found["line"]) - 1 :]
    before_calls = any(line.startswith("start:") for line in rest)
    rules = () if before_calls else filter(None, map(RULE.fullmatch, rest))
    return FaultyPart(next((rule["name"] for rule in rules), None), found["reason"])
