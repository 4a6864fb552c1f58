"""What a schema asks of a string that is written as it stands, as a terminal in Lark."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from turnout.core.errors import RequestError
from turnout.text.output.expressions import INLINE_FLAGS, alternatives, compiled_parts

__all__ = ["string_form"]

ANY = "/(?s:.)*/"
LEAP_YEARS = "([0-9]{2}(0[48]|[2468][048]|[13579][26])|(0[48]|[2468][048]|[13579][26])00)"
DAYS = ("(0[1-9]|1[0-2])-(0[1-9]|1[0-9]|2[0-8])", "(0[13-9]|1[0-2])-(29|30)", "(0[13578]|1[02])-31")
"""Of any year."""
FORMATS = {
    "date": f"([0-9]{{4}}-({'|'.join(DAYS)})|{LEAP_YEARS}-02-29)",
    "time": r"([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](\.[0-9]{1,9})?(Z|[+-]([01][0-9]|2[0-3]):[0-5][0-9])",
    "ipv4": r"((25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])\.){3}(25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])",
    "uuid": "[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}",
}
FORMATS["date-time"] = f"{FORMATS['date']}T{FORMATS['time']}"


def string_form(schema: Mapping[str, Any], *, strict: bool) -> str:
    """Returns the body of a terminal. Raises RequestError for what it cannot hold, if that is `strict`."""
    return " & ".join(f"({part})" for part in _parts(schema, strict)) or ANY


def _parts(schema: Mapping[str, Any], strict: bool) -> Iterator[str]:
    low, high = schema.get("minLength") or 0, schema.get("maxLength")
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
    parts = compiled_parts(pattern)
    if parts is None or any(INLINE_FLAGS.fullmatch(part) for part in parts):
        return None
    found = [_alternative(each) for each in alternatives(parts)]
    if None in found:
        return None
    return "(" + "|".join(filter(None, found)) + ")"


def _alternative(parts: list[str]) -> str | None:
    """An alternative that is searched, as the compiler has it: it finds whole texts alone."""
    first = bool(parts) and parts[0] == "^"
    last = len(parts) > first and parts[-1] == "$"
    inside = parts[first : len(parts) - last]
    if "^" in inside or "$" in inside:
        return None
    return f"{'' if first else '(?s:.)*'}({''.join(inside)}){'' if last else '(?s:.)*'}"
