"""What a schema asks of a string that is written as it stands, as a terminal in Lark."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from turnout.core.errors import RequestError

__all__ = ["string_form"]

ANY = "/(?s:.)*/"
UNKNOWN = re.compile(r"\(\?[=!<P]|\\[bB1-9kpP]")
"""What the compiler's expressions have not: looking around, references, borders of words."""
PARTS = re.compile(r"\\.|\[\^?\]?(?:\\.|[^\]\\])*\]|.", re.DOTALL)
"""What stands in an expression: an escaped character, a class, or any other character."""
CLASSES = {r"\d": "0-9", r"\w": "A-Za-z0-9_"}
FORMATS = {
    "date": r"[0-9]{4}-(0[1-9]|1[0-2])-(0[1-9]|1[0-9]|2[0-8])",
    "time": r"([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](\.[0-9]{1,6})?(Z|[+-]([01][0-9]|2[0-3]):[0-5][0-9])",
    "ipv4": r"((25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])\.){3}(25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])",
    "uuid": "[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}",
}
FORMATS["date-time"] = f"{FORMATS['date']}T{FORMATS['time']}"


def string_form(schema: Mapping[str, Any], *, strict: bool) -> str:
    """Returns the body of a terminal. Raises RequestError for what it cannot hold, if that is `strict`."""
    return " & ".join(f"({part})" for part in _parts(schema, strict)) or ANY


def _parts(schema: Mapping[str, Any], strict: bool) -> Iterator[str]:
    low, high = schema.get("minLength", 0), schema.get("maxLength")
    if low or high is not None:
        yield f"/(?s:.){{{int(low)},{'' if high is None else int(high)}}}/"
    if isinstance(pattern := schema.get("pattern"), str):
        if (expression := _searched(pattern)) is not None:
            yield "/" + expression + "/"
        elif strict:
            raise RequestError(f"the pattern {pattern!r} of a strict tool cannot be held", "tools")
    if (name := schema.get("format")) in FORMATS:
        yield "/" + FORMATS[name].replace("/", r"\/") + "/"
    elif name is not None and strict:
        raise RequestError(f"the format {name!r} of a strict tool cannot be held", "tools")


def _searched(pattern: str) -> str | None:
    """An expression for whole texts in which a pattern is found; None where there is none."""
    if UNKNOWN.search(pattern):
        return None
    found = [_alternative(each) for each in _alternatives(pattern)]
    if None in found:
        return None
    return "(" + "|".join(filter(None, found)) + ")"


def _alternatives(pattern: str) -> Iterator[list[str]]:
    """The parts of each of the alternatives at the top of a pattern."""
    depth = 0
    parts: list[str] = []
    for part in PARTS.findall(pattern):
        if part == "|" and not depth:
            yield parts
            parts = []
            continue
        depth += {"(": 1, ")": -1}.get(part, 0)
        parts.append(part)
    yield parts


def _alternative(parts: list[str]) -> str | None:
    """An alternative as the compiler has it: expressions of JSON schemas mean ASCII's digits and letters."""
    first = bool(parts) and parts[0] == "^"
    last = len(parts) > first and parts[-1] == "$"
    inside = parts[first : len(parts) - last]
    if "^" in inside or "$" in inside:
        return None
    text = "".join(_narrowed(part) for part in inside)
    return f"{'' if first else '(?s:.)*'}({text}){'' if last else '(?s:.)*'}"


def _narrowed(part: str) -> str:
    if part == "/":
        return r"\/"
    inside = part.startswith("[")
    if not inside and part in CLASSES:
        return f"[{CLASSES[part]}]"
    if inside:
        part = re.sub(r"\\.|/", lambda found: CLASSES.get(found[0], found[0].replace("/", r"\/")), part)
    return part
