"""Custom tools as functions, since models know only these: the input, which is any text, is an argument.

A definition and earlier calls become a function's (`parameters_of`, `as_function_call`), and what a model
writes as the argument becomes the input again (`InputReader`).
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from turnout.core.errors import RequestError

__all__ = ["InputReader", "as_function_call", "parameters_of"]

INPUT = "input"
"""The name of the argument."""
BEFORE = re.compile(r'\s*\{\s*"(?:[^"\\]|\\.)*"\s*:\s*"', re.DOTALL)
"""What stands before the text: the arguments have one key."""
WHOLE = re.compile(r'(?:[^"\\]|\\[^u]|\\u[0-9a-fA-F]{4})*', re.DOTALL)
"""A piece of a string, up to its end or to an escape that is not complete."""
HALVES = re.compile("[\ud800-\udfff]")
"""Halves of pairs, which no text can hold."""
ESCAPED_HALF = len(r"\ud83d")


def parameters_of(**kept: Any) -> dict[str, Any]:
    """The schema of the function's arguments. kept: further keywords of the text's own schema."""
    return {
        "type": "object",
        "properties": {INPUT: {"type": "string", **kept}},
        "required": [INPUT],
        "additionalProperties": False,
    }


def as_function_call(where: str, call: Mapping[str, Any]) -> dict[str, Any]:
    """An earlier call of a custom tool as a function's. Raises RequestError for one without a name or input.

    where: what errors call it.
    """
    custom = call.get("custom")
    if not isinstance(custom, dict) or not all(isinstance(custom.get(key), str) for key in ("name", INPUT)):
        raise RequestError(f"{where} should have a custom tool with a name and an input", "messages")
    function = {"name": custom["name"], "arguments": {INPUT: custom[INPUT]}}
    kept = {key: value for key, value in call.items() if key != "custom"}
    return {**kept, "type": "function", "function": function}


class InputReader:
    """Turns a call's arguments, whose JSON comes in pieces, into the text that they say."""

    def __init__(self) -> None:
        self._left = ""
        """JSON that is not read yet."""
        self._begun = self._ended = False

    def feed(self, piece: str) -> str:
        """Returns the text that the piece completes: no half of an escape, nor of a surrogate pair."""
        self._left += piece
        if not self._begun:
            if (before := BEFORE.match(self._left)) is None:
                return ""
            self._begun, self._left = True, self._left[before.end() :]
        return "" if self._ended else self._text()

    def _text(self) -> str:
        found = WHOLE.match(self._left)
        assert found is not None
        whole, self._left = found[0], self._left[found.end() :]
        self._ended = self._left.startswith('"')
        said: str = json.loads(f'"{whole}"', strict=False)
        if not self._ended and "\ud800" <= said[-1:] <= "\udbff":  # the other half may follow
            self._left = whole[-ESCAPED_HALF:] + self._left
            said = said[:-1]
        return HALVES.sub("\ufffd", said)
