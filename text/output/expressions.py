"""Regular expressions of JSON schemas, in the notation of the compiler of grammars.

Schemas have those of ECMA-262, which libraries of other languages mix with their own. The compiler has those
of Rust's `regex`, where `[` and `-` mean more in a class, and where `\\d` and `\\w` are all of Unicode's.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from itertools import accumulate

__all__ = ["INLINE_FLAGS", "alternatives", "compiled_parts", "whole_expression"]

ESCAPE = (
    r"\\(?:[pP]\{[^}]*\}|u\{[0-9a-fA-F]+\}|x[0-9a-fA-F]{2}|c[A-Za-z]"
    r"|u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|u(?![dD][89a-fA-F])[0-9a-fA-F]{4}|0(?![0-9])|.)"
)
GROUP = r"\((?:\?(?:[imsx]*(?:-[imsx]+)?:|[imsx]+\)|P?<[A-Za-z_][A-Za-z0-9_]*>))?"
PARTS = re.compile(
    rf"{ESCAPE}|\[\^?\]?(?:\\.|\[:\^?[a-z]+:\]|[^\]\\])*\]|\{{[0-9]*(?:,[0-9]*)?\}}|{GROUP}|.", re.DOTALL
)
"""An escaped character, a class, a count, what begins a group, or any other character."""
CLASS_PARTS = re.compile(rf"{ESCAPE}|\[:\^?[a-z]+:\]|.", re.DOTALL)
KNOWN = frozenset("sSnrtfvaxpP")
"""Escapes that the compiler has, and that mean the same, beside those of CLASSES."""
CLASSES = {r"\d": "0-9", r"\w": "A-Za-z0-9_", r"\D": "^0-9", r"\W": "^A-Za-z0-9_"}
ENDS = {r"\A": "^", r"\z": "$", r"\Z": "$"}
SEVERAL = {r"\s", r"\S", *CLASSES}
"""In a class, more than one character, so that none of them begins or ends a range."""
INLINE_FLAGS = re.compile(r"\(\?([imsx]+)\)")
"""They hold for the alternatives that follow, too, which are taken apart."""
LINE_ENDS = {"\n": r"\n", "\r": r"\r"}
WRITTEN = {**LINE_ENDS, "/": r"\/", "{": r"\{", "{}": r"\{}", "[": None, "[]": None, "[^]": "(?s:.)"}


def compiled_parts(pattern: str) -> list[str] | None:
    """Returns the parts of the same expression for the compiler; None where it has none.

    It has no borders of words, references, or looking around; no beginning or end of the text where there is
    text beyond.
    """
    parts = _parts(pattern)
    found: list[str] = []
    for index, part in enumerate(parts):
        if part == "(" and parts[index + 1 : index + 2] == ["?"]:
            return None
        if part == "^" and index and not parts[index - 1].startswith(("|", "(")):
            return None
        if part == "$" and parts[index + 1 : index + 2] not in ([], ["|"], [")"]):
            return None
        if (written := _part(part)) is None:
            return None
        found.append(written)
    return found


def whole_expression(pattern: str) -> str | None:
    """The `pattern` of a schema, which is searched, for texts that an expression matches from end to end.

    None where the compiler has none in some format of calls, or a parenthesis is missing: it would be one of
    those around the expression.
    """
    parts = _parts(pattern)
    if compiled_parts(pattern) is None or not _is_balanced(parts):
        return None
    flags = INLINE_FLAGS.fullmatch(parts[0]) if parts else None
    inside = [_without_ends(each) for each in alternatives(parts[1:] if flags else parts)]
    if any(part in ("^", "$") or INLINE_FLAGS.fullmatch(part) for each in inside for part in each):
        return None
    return f"^(?{flags[1] if flags else ''}:{'|'.join(map(''.join, inside))})$"


def alternatives(parts: Iterable[str]) -> Iterator[list[str]]:
    """The parts of each of the alternatives at the top of a pattern."""
    depth = 0
    found: list[str] = []
    for part in parts:
        if part == "|" and not depth:
            yield found
            found = []
            continue
        depth += _deeper(part)
        found.append(part)
    yield found


def _is_balanced(parts: Iterable[str]) -> bool:
    depths = list(accumulate(map(_deeper, parts)))
    return not depths or (depths[-1] == 0 and min(depths) == 0)


def _deeper(part: str) -> int:
    """How many groups more a part opens than it closes."""
    return (part.startswith("(") and not part.endswith(")")) - (part == ")")


def _without_ends(parts: list[str]) -> list[str]:
    first = parts[:1] == ["^"]
    return parts[first : len(parts) - (parts[first:][-1:] == ["$"])]


def _parts(pattern: str) -> list[str]:
    return [ENDS.get(part, part) for part in PARTS.findall(pattern)]


def _part(part: str) -> str | None:
    if part in CLASSES:
        return f"[{CLASSES[part]}]"
    if part.startswith("\\"):
        return _escape(part)
    if part.startswith("[") and part not in WRITTEN:
        return _class(part)
    if part.startswith("{,"):
        return None  # up to so many in some libraries, as it stands in others
    return WRITTEN.get(part, part)


def _escape(part: str) -> str | None:
    kind = part[1:2]
    if not kind:
        return None  # what it escapes is missing
    if kind == "c" and len(part) == 3:
        return rf"\x{ord(part[2]) % 32:02x}"
    if kind == "u" and len(part) == 12:
        return rf"\u{{{ord(_from_pair(part)):x}}}"
    if part == r"\0":
        return r"\x00"
    if kind in KNOWN:
        return part if kind != "x" or len(part) == 4 else None
    if kind == "u":
        return part if len(part) > 2 else None
    if kind in "<>" or not kind.isascii():
        return kind
    return None if kind.isalnum() else part


def _from_pair(part: str) -> str:
    return bytes.fromhex(part[2:6] + part[8:12]).decode("utf-16-be")


def _class(part: str) -> str | None:
    inverted = part.startswith("[^")
    inside = CLASS_PARTS.findall(part[2:-1] if inverted else part[1:-1])
    found: list[str] = []
    index = 0
    while index < len(inside):
        is_range = inside[index + 1 : index + 2] == ["-"] and index + 2 < len(inside)
        if is_range and not SEVERAL & {inside[index], inside[index + 2]}:
            first, last = _in_class(inside[index]), _in_class(inside[index + 2])
            written, index = None if first is None or last is None else f"{first}-{last}", index + 3
        else:
            written, index = _in_class(inside[index]), index + 1
        if written is None:
            return None
        found.append(written)
    return f"[{'^' if inverted else ''}{''.join(found)}]"


def _in_class(part: str) -> str | None:
    if part in CLASSES:
        inside = CLASSES[part]
        return f"[{inside}]" if inside.startswith("^") else inside
    if part == r"\b":
        return r"\x08"
    if part.startswith("\\"):
        return _escape(part)
    return rf"\{part}" if part in "[]^-&~/" else LINE_ENDS.get(part, part)
