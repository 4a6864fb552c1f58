"""Structured outputs: the form that an output must have."""

from __future__ import annotations

import json as jsonlib
from typing import Any

import msgspec

from turnout.core.errors import RequestError

__all__ = ["KINDS", "StructuredOutputs"]

KINDS = ("json", "regex", "choice", "grammar", "json_object")


class StructuredOutputs(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A form, given in exactly one of these ways. Names and meanings are vLLM's."""

    json: str | dict[str, Any] | None = None
    """A JSON schema, as an object or its text; kept as text."""
    regex: str | None = None
    """An expression that the whole output matches."""
    choice: tuple[str, ...] | None = None
    """The output is one of these."""
    grammar: str | None = None
    """A grammar in the syntax of Lark or of GBNF."""
    json_object: bool | None = None
    """True: the output is any JSON object."""

    def __post_init__(self) -> None:
        if isinstance(self.json, dict):
            msgspec.structs.force_setattr(self, "json", jsonlib.dumps(self.json, ensure_ascii=False))
        if isinstance(self.choice, list):
            msgspec.structs.force_setattr(self, "choice", tuple(self.choice))
        for name in ("json", "regex", "grammar"):
            if not isinstance(getattr(self, name), str | None):
                raise _error(f"{name} must be {'an object or ' if name == 'json' else ''}a string")
        if self.choice is not None and not _texts(self.choice):
            raise _error("choice must be a list of strings, none of them empty")
        if len(self._given) != 1:
            given = " and ".join(self._given) or "none"
            raise _error(f"structured_outputs takes exactly one of {', '.join(KINDS)}, not {given}")

    @property
    def kind(self) -> str:
        """The name of the field that is given."""
        return self._given[0]

    @property
    def _given(self) -> list[str]:
        return [name for name in KINDS if getattr(self, name) not in (None, False)]


def _texts(choice: object) -> bool:
    return isinstance(choice, tuple) and bool(choice) and all(isinstance(c, str) and c for c in choice)


def _error(what: str) -> RequestError:
    return RequestError(what, "structured_outputs")
