"""Structured outputs: the form that an output must have."""

from __future__ import annotations

import json as jsonlib
from typing import Any

import msgspec

from turnout.core import limits
from turnout.core.errors import RequestError

__all__ = ["KINDS", "FreeRegion", "FreeText", "FreeValue", "Pieces", "StructuredOutputs"]

KINDS = ("json", "regex", "choice", "grammar", "json_object")


Pieces = tuple[int | str, ...]
"""A marker: texts, and the ids of special tokens."""


class FreeRegion(msgspec.Struct, frozen=True):
    """A region of free text between markers."""

    open: Pieces
    close: tuple[Pieces, ...]
    """The ways to write what ends it; none: it goes to the output's end."""


class FreeValue(msgspec.Struct, frozen=True):
    """A value in a call that stands as it is, on lines of its own."""

    open: str
    """What comes before it, a line break at the end, which no value in JSON can hold."""
    free: bool
    """It may be any text that its end is no part of."""


class FreeText(msgspec.Struct, frozen=True, kw_only=True):
    """The free places of an output: a region, text up to the first call, and values in calls."""

    regions: tuple[FreeRegion, ...] = ()
    answer: tuple[Pieces, ...] | None = None
    """The ways to write what ends the answer's text; None: the answer is not free, or behind a region."""
    within: int = -1
    """The region in which the output begins; -1: in none."""
    values: tuple[FreeValue, ...] = ()
    """All values of calls that stand as they are; empty where calls have other texts, too."""
    close: str = ""
    """What ends these, behind a line break."""
    between: bool = False
    """There is no text outside of regions, but headers, and a region may follow another."""


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
    free: FreeText | None = None
    """Where the grammar allows any text, so that masks are found quicker there. Wrong, it breaks the form."""

    def __post_init__(self) -> None:
        if isinstance(self.json, dict):
            msgspec.structs.force_setattr(self, "json", _text_of(self.json))
        if isinstance(self.choice, list):
            msgspec.structs.force_setattr(self, "choice", tuple(self.choice))
        for name in ("json", "regex", "grammar"):
            if not isinstance(getattr(self, name), str | None):
                raise _error(f"{name} must be {'an object or ' if name == 'json' else ''}a string")
        if self.choice is not None and not _texts(self.choice):
            raise _error("choice must be a list of strings, none of them empty")
        self._check_size()
        if len(self._given) != 1:
            given = " and ".join(self._given) or "none"
            raise _error(f"structured_outputs takes exactly one of {', '.join(KINDS)}, not {given}")

    def _check_size(self) -> None:
        count, most = len(self.choice or ()), limits.FORM_CHOICES.whole
        if count > most:
            raise _error(f"choice has {count:,} texts; at most {most:,} are allowed")
        for name in ("json", "regex", "grammar", "choice"):
            given = getattr(self, name)
            sizes = list(map(_size, given if name == "choice" else [given])) if given else [0]
            if sum(sizes) > limits.FORM.whole:
                raise _error(f"{name} has {sum(sizes):,} bytes; at most {limits.FORM.whole:,} are allowed")
            if name == "choice" and max(sizes) > limits.FORM_TEXT.whole:
                most = limits.FORM_TEXT.whole
                raise _error(f"a choice has {max(sizes):,} bytes; at most {most:,} are allowed")

    @property
    def kind(self) -> str:
        """The name of the field that is given."""
        return self._given[0]

    @property
    def _given(self) -> list[str]:
        return [name for name in KINDS if getattr(self, name) not in (None, False)]


def _texts(choice: object) -> bool:
    return isinstance(choice, tuple) and bool(choice) and all(isinstance(c, str) and c for c in choice)


def _text_of(schema: dict[str, Any]) -> str:
    try:
        return jsonlib.dumps(schema, ensure_ascii=False)
    except (RecursionError, TypeError, ValueError) as error:
        raise _error(f"json must be plain data, and not nested too deeply: {error}") from None


def _size(text: str) -> int:
    try:
        return len(text.encode())
    except UnicodeEncodeError:
        raise _error("a form of structured output must be valid Unicode, without halves of pairs") from None


def _error(what: str) -> RequestError:
    return RequestError(what, "structured_outputs")
