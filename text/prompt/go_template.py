"""Prompt templates in Go's language, as far as Ollama's requests use it to make one prompt.

Variables and ``if``, ``else``, ``end``, with the marks that trim white space. A template that loops over
messages is a chat template, for which a checkpoint has its own.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from turnout.core import limits
from turnout.core.errors import RequestError

__all__ = ["render"]

RESPONSE = ".Response"
"""Where the model's text goes: a prompt ends there."""
DEEPEST = 64
"""Branches within each other."""


def render(template: str, variables: Mapping[str, str]) -> str:
    """The prompt. Raises RequestError for a template that is malformed, too long, or that this does not know.

    variables: by name, such as ``Prompt``.
    """
    made, branches = _Made(), list[_Branch]()
    for is_action, part in _parts(template):
        shown = all(branch.open for branch in branches)
        if not is_action:
            made.add(part if shown else "")
        elif part == RESPONSE:
            if shown:
                break
        elif part == "end" or part.startswith("else"):
            _turn(part, branches, variables)
        elif part.startswith("if "):
            branches.append(_Branch(_holds(part[3:], variables)))
            if len(branches) > DEEPEST:
                raise _malformed(f"more than {DEEPEST} branches stand within each other")
        elif not part.startswith("/*"):
            value = _value(part, variables)
            made.add(value if shown else "")
    else:
        if branches:
            raise _malformed("an 'if' has no 'end'")
    return "".join(made.parts)


class _Made:
    """The prompt so far, which a template could make endless."""

    def __init__(self) -> None:
        self.parts: list[str] = []
        self._size = 0

    def add(self, text: str) -> None:
        self.parts.append(text)
        self._size += len(text)
        if self._size > limits.TOKENIZED.most:
            raise _malformed(f"it makes a prompt of more than {limits.TOKENIZED.whole:,} characters")


class _Branch:
    """An ``if`` and its ``else``."""

    def __init__(self, holds: bool) -> None:
        self.open = self.taken = holds

    def go_on(self, holds: bool) -> None:
        self.open = holds and not self.taken
        self.taken |= holds


def _parts(template: str) -> Iterator[tuple[bool, str]]:
    """Text and actions in turn, each with whether it is an action; white space is trimmed as they say."""
    place, trims = 0, False
    while (begin := template.find("{{", place)) >= 0:
        end = template.find("}}", begin)
        if end < 0:
            raise _malformed("an action that {{ begins has no }}")
        text, action = template[place:begin], template[begin + 2 : end]
        text = text.lstrip() if trims else text
        if action[:1] == "-" and action[1:2].isspace():
            text, action = text.rstrip(), action[1:]
        trims = action.endswith("-") and action[-2:-1].isspace()
        yield False, text
        yield True, (action[:-1] if trims else action).strip()
        place = end + 2
    rest = template[place:]
    yield False, rest.lstrip() if trims else rest


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
    word, *names = condition.split() or [""]
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
