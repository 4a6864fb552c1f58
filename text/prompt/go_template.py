"""Prompt templates in Go's language, as far as Ollama's requests use it to make one prompt.

Variables and ``if``, ``else``, ``end``, with the marks that trim white space. A template that loops over
messages is a chat template, for which a checkpoint has its own.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from turnout.core.errors import RequestError

__all__ = ["render"]

ACTION = re.compile(r"(\s*\{\{-(?=\s)|\{\{)\s*(.*?)\s*((?<=\s)-\}\}\s*|\}\})", re.DOTALL)
RESPONSE = ".Response"
"""Where the model's text goes: a prompt ends there."""


def render(template: str, variables: Mapping[str, str]) -> str:
    """The prompt. Raises RequestError for a template that is malformed, or that this does not know.

    variables: by name, such as ``Prompt``.
    """
    parts: list[str] = []
    branches: list[_Branch] = []
    place = 0
    for found in ACTION.finditer(template):
        shown = all(branch.open for branch in branches)
        if shown:
            parts.append(template[place : found.start()])
        place = found.end()
        action = found[2]
        if action == RESPONSE:
            if shown:
                return "".join(parts)
        elif action == "end" or action.startswith("else"):
            _turn(action, branches, variables)
        elif action.startswith("if "):
            branches.append(_Branch(_holds(action[3:], variables)))
        elif not action.startswith("/*"):
            parts += [_value(action, variables)] if shown else []
    if branches:
        raise _malformed("an 'if' has no 'end'")
    return "".join([*parts, template[place:]])


class _Branch:
    """An ``if`` and its ``else``."""

    def __init__(self, holds: bool) -> None:
        self.open = self.taken = holds

    def go_on(self, holds: bool) -> None:
        self.open = holds and not self.taken
        self.taken |= holds


def _turn(action: str, branches: list[_Branch], variables: Mapping[str, str]) -> None:
    if not branches:
        raise _malformed(f"{action!r} stands without an 'if'")
    if action == "end":
        branches.pop()
    elif action == "else":
        branches[-1].go_on(True)
    elif action.startswith("else if "):
        branches[-1].go_on(_holds(action[8:], variables))
    else:
        raise _unknown(action)


def _holds(condition: str, variables: Mapping[str, str]) -> bool:
    word, *names = condition.split()
    if word in ("and", "or", "not") and names:
        values = [bool(_value(name, variables)) for name in names]
        return not values[0] if word == "not" else (all if word == "and" else any)(values)
    if names:
        raise _unknown(f"if {condition}")
    return bool(_value(word, variables))


def _value(name: str, variables: Mapping[str, str]) -> str:
    if name.startswith(".") and name[1:] in variables:
        return variables[name[1:]]
    if name == RESPONSE:
        return ""
    raise _unknown(name)


def _unknown(action: str) -> RequestError:
    return RequestError(
        f"template: {{{{ {action[:80]} }}}} is not supported, only .System, .Prompt, .Suffix, .Response and "
        "if; leave template out to use the model's own",
        "template",
    )


def _malformed(why: str) -> RequestError:
    return RequestError(f"template: {why}", "template")
