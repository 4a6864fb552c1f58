"""Reads transformers' `response_template`, by which a checkpoint says how its model writes answers.

It is data, as our formats are, but its anchors are regular expressions. Those that are markers with a name or
white space between them become a format; others are refused, since no grammar can be made of them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from turnout.core.types.output_format import (
    JSON,
    Body,
    Calls,
    JsonCall,
    NamedCall,
    Notation,
    OutputFormat,
    Region,
    XmlCall,
)

__all__ = ["NotExpressible", "format_of"]

REASONING = ("reasoning_content", "reasoning", "thinking")
"""What templates call the field of reasoning."""
PARTS = re.compile(
    r"(?P<space>\\s[*+?]?)|\(\?P<(?P<group>\w+)>|\\(?P<escaped>[^\w\s]|n)|(?P<plain>[^\\.*+?()\[\]{}|^$])"
)


class NotExpressible(Exception):
    """The template says something that no format can."""


class _Part(NamedTuple):
    """A part of an anchor."""

    kind: str
    """``text``, ``space``, or the name of a group."""
    text: str = ""


def format_of(template: Any) -> OutputFormat:
    """Returns the format. Raises NotExpressible, which says what cannot be expressed."""
    try:
        return _format_of(template)
    except (AttributeError, IndexError, KeyError, TypeError, ValueError) as error:
        raise NotExpressible(f"it is malformed: {error}") from error


def _format_of(template: Any) -> OutputFormat:
    if not isinstance(template, Mapping) or template.get("version", 1) != 1:
        raise NotExpressible("it is of another version")
    fields = template.get("fields")
    if (
        not isinstance(fields, Mapping)
        or not fields
        or not all(isinstance(each, Mapping) for each in fields.values())
    ):
        raise NotExpressible("it has no fields")
    if unknown := fields.keys() - {"content", "tool_calls", *REASONING}:
        raise NotExpressible(f"it has the field {min(unknown)!r}")
    if _anchor(fields.get("content", {}), "open"):
        raise NotExpressible("the answer's text has a marker of its own")
    regions = tuple(_region(fields[name]) for name in REASONING if name in fields)
    calls = _calls(fields["tool_calls"]) if "tool_calls" in fields else None
    return OutputFormat(found_by=(), calls=calls, regions=regions)


def _region(field: Mapping[str, Any]) -> Region:
    # White space around reasoning is no part of it, nor of what prompts end with.
    return Region(
        "reasoning", _marker(_anchor(field, "open")).strip(), _marker(_anchor(field, "close")).strip()
    )


def _calls(field: Mapping[str, Any]) -> Calls:
    opens, closes = _anchor(field, "open"), _anchor(field, "close")
    content, function = field.get("content", "text"), _function(field)
    if any(part.kind == "name" for part in opens):
        if function != ("{name}", "{content}"):
            raise NotExpressible("a call is not made of its name and its content")
        if content == "xml-inline":
            return _tagged(opens, closes, field.get("content_args", {}))
        if content == "json":
            return _named(opens, closes, field.get("content_args", {}))
    elif content == "json":
        return _in_json(opens, closes, field, function)
    raise NotExpressible(f"the content of a call is {content!r}")


def _in_json(
    opens: Sequence[_Part], closes: Sequence[_Part], field: Mapping[str, Any], function: tuple[str, str]
) -> Calls:
    each = bool(field.get("transform_each"))
    prefix = "{" if each else "{content."
    if not all(said.startswith(prefix) and said.endswith("}") for said in function):
        raise NotExpressible("a call's name and arguments are not keys of its content")
    body: Body = JsonCall(*(said[len(prefix) : -1] for said in function))
    if not each:
        return Calls(body, open=_marker(opens), close=_marker(closes))
    if closes:
        raise NotExpressible("a list of calls has a marker at its end")
    return Calls(body, before=_marker(opens), lead="[", between=",", after="]")


def _named(opens: Sequence[_Part], closes: Sequence[_Part], args: Mapping[str, Any]) -> Calls:
    before, after = _around(opens, "name")
    match bool(args.get("unquoted_keys")), args.get("string_delims") or []:
        case False, []:
            notation = JSON
        case True, [[str(quote), closing]] if quote and closing == quote:
            notation = Notation(quote=quote, bare_keys=True)
        case _:
            raise NotExpressible("the arguments of a call are in a notation of its own")
    separators = (_text(after),) if after else ()
    return Calls(NamedCall(separators, notation=notation), open=_marker(before), close=_marker(closes))


def _tagged(opens: Sequence[_Part], closes: Sequence[_Part], args: Mapping[str, Any]) -> Calls:
    before, after = _around(opens, "name")
    tag = list(_parts(str(args.get("tag_pattern", ""))))
    key_open, rest = _around(tag, "key")
    between, value_close = _around(rest, "value")
    key_close, *value_open = _texts(between)
    if len(value_open) > 1:
        raise NotExpressible("an argument has three markers between key and value")
    first, *then = _texts(before)
    *end, close = _texts(closes)
    lines = between[-1:] == [_Part("space")] or not value_open
    body = XmlCall(
        before="".join(then),
        after=_text(after),
        key=(_marker(key_open), key_close),
        value=("".join(value_open), _marker(value_close)),
        end="".join(end),
        lines=lines,
    )
    return Calls(body, open=first, close=close)


def _function(field: Mapping[str, Any]) -> tuple[str, str]:
    """What a call's name and arguments are made of."""
    transform = field.get("transform", "{content}")
    function = transform.get("function") if isinstance(transform, Mapping) else transform
    if function == "{content}":
        return "{content.name}", "{content.arguments}"
    if not isinstance(function, Mapping):
        raise NotExpressible("a call is made of other parts than its name and arguments")
    return str(function.get("name")), str(function.get("arguments"))


# -------------------------------------------------------------- anchors


def _anchor(field: Mapping[str, Any], which: str) -> list[_Part]:
    """The parts of what opens or closes a field; none if nothing does."""
    given = field.get(which)
    if isinstance(given, list) and len(given) == 1:
        (given,) = given
    if isinstance(given, str):
        return [_Part("text", given)]
    if given is not None:
        raise NotExpressible("a field has several markers")
    found = list(_parts(field.get(f"{which}_pattern", "")))
    while found and found[0].kind == "space":
        del found[0]
    while found and found[-1].kind == "space":
        del found[-1]
    return found


def _parts(pattern: str) -> Iterator[_Part]:
    """The parts of a regular expression. Raises NotExpressible for all but texts, white space and groups."""
    text, at = "", 0
    while at < len(pattern):
        found = PARTS.match(pattern, at)
        if found is None:
            raise NotExpressible(f"it has the expression {pattern!r}")
        at = found.end()
        if found["escaped"] or found["plain"]:
            text += "\n" if found["escaped"] == "n" else found["escaped"] or found["plain"]
            continue
        if text:
            yield _Part("text", text)
            text = ""
        yield _Part("space") if found["space"] else _Part(found["group"])
        if found["group"]:
            at = _end_of_group(pattern, at)
    if text:
        yield _Part("text", text)


def _end_of_group(pattern: str, at: int) -> int:
    """Where a group ends whose inside begins at `at`."""
    inside = re.compile(r"(?:\\.|\[\^?(?:\\.|[^\]\\])*\]|[^()\\\[])*\)", re.DOTALL).match(pattern, at)
    if inside is None:
        raise NotExpressible(f"it has the expression {pattern!r}")
    return inside.end()


def _around(parts: Sequence[_Part], group: str) -> tuple[list[_Part], list[_Part]]:
    """What stands before and behind a group."""
    kinds = [part.kind for part in parts]
    if kinds.count(group) != 1:
        raise NotExpressible(f"an anchor has no part {group!r}")
    at = kinds.index(group)
    return list(parts[:at]), list(parts[at + 1 :])


def _texts(parts: Sequence[_Part]) -> list[str]:
    """The texts, white space between them left out. Raises NotExpressible if there is none."""
    texts = [part.text for part in parts if part.kind == "text"]
    if not texts or not all(texts) or any(part.kind not in ("text", "space") for part in parts):
        raise NotExpressible("an anchor is not made of texts")
    return texts


def _text(parts: Sequence[_Part]) -> str:
    """The one text. Raises NotExpressible if there is another number."""
    texts = _texts(parts)
    if len(texts) != 1:
        raise NotExpressible("an anchor has white space inside")
    return texts[0]


def _marker(parts: Sequence[_Part]) -> str:
    """The one text, which must be more than white space."""
    text = _text(parts)
    if not text.strip():
        raise NotExpressible("a marker is nothing but white space")
    return text
