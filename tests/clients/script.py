"""What the assistant says: rules, in the form that its model's chat template gives calls and reasoning.

Suites in environments of their own import this too: it needs nothing but Python.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

__all__ = ["Script", "call", "rule", "thought", "turns_of"]

END = "<|im_end|>"


def call(name: str, /, **arguments: Any) -> str:
    """A tool call."""
    body = json.dumps({"name": name, "arguments": arguments}, ensure_ascii=False)
    return f"<tool_call>\n{body}\n</tool_call>\n"


def thought(text: str) -> str:
    """Reasoning, which comes before the answer."""
    return f"<think>\n{text}\n</think>\n\n"


class Script:
    """The rules by which the assistant answers; the first that fits a prompt holds."""

    def __init__(self, file: Path) -> None:
        self.file = file
        self.rules: list[dict[str, Any]] = []

    def play(self, *rules: dict[str, Any]) -> None:
        """From now on these rules hold, in this order."""
        self.rules = list(rules)
        written = self.file.with_suffix(".new")
        written.write_text(json.dumps(self.rules))
        os.replace(written, self.file)

    def say(self, *turns: str) -> None:
        """What the assistant says in its first turn of a conversation, in its second, and so on."""
        self.play(*turns_of(*turns))


def turns_of(*turns: str, when: str = "") -> list[dict[str, Any]]:
    """Rules for the turns of a conversation, each known by how many the assistant had before."""
    return [rule(text, when, turn=number) for number, text in enumerate(turns)]


def rule(say: str, /, *when: str, unless: str = "", turn: int | None = None) -> dict[str, Any]:
    """A rule. when: regular expressions that are all found in a prompt; unless: one that is not; turn: how
    many turns the assistant had before."""
    return {"when": [each for each in when if each], "unless": unless, "turn": turn, "say": say + END}
