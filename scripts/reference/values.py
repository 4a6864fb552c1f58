"""What a pydantic field takes, in words: "integer, from 1", "`auto` or `torch`"."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from annotated_types import Ge, Gt, Le, Lt, MinLen
from pydantic import BaseModel
from pydantic.fields import FieldInfo

from turnout.core.registry.kinds import KINDS
from turnout.lab.workloads.lengths import Lengths
from turnout.scripts.reference.tables import code, listed
from turnout.server.protocol.token_ids import TokenId

WORDS = {
    bool: "boolean",
    int: "integer",
    float: "number",
    str: "string",
    dict: "object",
    Path: "file",
    Any: "any",
}

NAMED = {TokenId: "token id", Lengths: "[lengths](workloads.md#lengths)"}
"""Types that people know by a name."""


def field_values(field: FieldInfo) -> str:
    return described(field.annotation, field.metadata)


def described(annotation: object, metadata: Iterable[object] = ()) -> str:
    """The type in words, and its bounds. Raises LookupError for a type that has no words yet."""
    if annotation in NAMED:
        return NAMED[annotation]
    kind, marks = _without_marks(annotation)
    bounds = _bounds(_flat([*marks, *metadata]), whole=kind is int)
    return ", ".join(filter(None, (_kind(kind), bounds)))


def _without_marks(annotation: object) -> tuple[object, list[object]]:
    """The type that is left without None and without marks, and the marks."""
    if get_origin(annotation) is Annotated:
        inner, *marks = get_args(annotation)
        kind, deeper = _without_marks(inner)
        return kind, [*deeper, *marks]
    if get_origin(annotation) in (Union, UnionType):
        kinds = [each for each in get_args(annotation) if each is not NoneType]
        if len(kinds) == 1:
            return _without_marks(kinds[0])
    return annotation, []


def _kind(kind: object) -> str:
    if kind in NAMED:
        return NAMED[kind]
    origin, within = get_origin(kind), get_args(kind)
    if origin is Literal:
        return listed([code(str(each)) for each in within])
    if origin in (Union, UnionType):
        return listed(list(dict.fromkeys(described(each) for each in within if each is not NoneType)))
    if origin in (list, tuple):
        return f"list of {_plural(described(within[0]))}"
    if (found := origin or kind) in WORDS:
        return WORDS[found]
    if isinstance(kind, type) and issubclass(kind, BaseModel):
        return "object"
    for plugin in KINDS.values():
        if kind is plugin.base:
            return f"[{plugin.name}](#{plugin.name})"
    raise LookupError(f"no words for the type {kind}")


def _plural(words: str) -> str:
    """Of ``string, not empty``: ``strings, none of them empty``."""
    noun, comma, bounds = words.partition(", ")
    return f"{noun}s{comma}{bounds.replace('not empty', 'none of them empty')}"


def _bounds(marks: Iterable[object], whole: bool) -> str:
    """In the order from below to above. Of integers, "above 0" is "from 1"."""
    low, high = "", ""
    for mark in marks:
        match mark:
            case Gt(gt=bound):
                low = f"from {int(str(bound)) + 1}" if whole else f"above {bound}"
            case Ge(ge=bound) if bound == -(2**63):
                return "64 bits signed"
            case Ge(ge=bound):
                low = f"from {bound}"
            case Le(le=bound):
                high = f"to {bound}" if low.startswith("from") else f"at most {bound}"
            case Lt(lt=bound):
                high = f"below {bound}"
            case MinLen(min_length=1):
                low = "not empty"
    return (" " if high.startswith("to") else ", ").join(filter(None, (low, high)))


def _flat(marks: Iterable[object]) -> Iterable[object]:
    """With what a ``Field(…)`` inside an annotation says."""
    for mark in marks:
        yield from mark.metadata if isinstance(mark, FieldInfo) else (mark,)
