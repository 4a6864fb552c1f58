"""Reads values in any notation, and says them in JSON as they come."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable
from contextlib import suppress

from turnout.core.types.output_format import Notation
from turnout.text.output.reading.source import Malformed, Reading, Source

__all__ = ["HALVES", "escaped", "read_pairs", "read_value", "scalar"]

Emit = Callable[[str], None]

CLOSING = {"{": "}", "[": "]", "(": ")"}
IN_JSON = {"{": "{", "}": "}", "[": "[", "]": "]", "(": "[", ")": "]"}
"""A tuple is a list."""
SCALAR_ENDS = re.compile(r"[,\]})\s]")
NUMBER = re.compile(r"-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?")
"""A number of JSON."""
HALVES = re.compile("[\ud800-\udfff]")
"""Halves of pairs, which no UTF-8 can hold."""
NAMED = {"true": "true", "True": "true", "false": "false", "False": "false", "null": "null", "None": "null"}
ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f", "v": "\v", "a": "\a", "\n": ""}
DIGITS = {"x": 2, "u": 4, "U": 8}


def read_value(source: Source, notation: Notation, emit: Emit) -> Reading[None]:
    """Takes a value; its JSON goes to `emit`. Raises Malformed where none is."""
    closing: list[str] = []
    while True:
        if closing and closing[-1] == "}":
            yield from _key(source, notation, emit)
        if (yield from _begins(source, notation, closing, emit)):
            continue
        while closing:
            yield from source.skip_white_space()
            found = yield from source.starts_with((",", closing[-1]))
            if found is None:
                raise Malformed
            source.take(1)
            if found == ",":
                yield from source.skip_white_space()
                if (yield from source.starts_with((closing[-1],))) is None:
                    emit(", ")
                    break
            else:
                emit(IN_JSON[closing.pop()])
        else:
            return


def read_pairs(source: Source, equals: str, end: str, notation: Notation, emit: Emit) -> Reading[None]:
    """Takes ``key=value, …`` up to `end`, with `equals` between key and value, as an object."""
    emit("{")
    yield from source.skip_white_space()
    first = True
    while (yield from source.starts_with((end,))) is None:
        key: list[str] = []
        if (yield from source.until((equals, ",", end), key.append)) != equals:
            raise Malformed
        emit(f"{'' if first else ', '}{escaped(''.join(key).strip(), whole=True)}: ")
        yield from read_value(source, notation, emit)
        yield from source.skip_white_space()
        if (yield from source.starts_with((",",))) is not None:
            source.take(1)
            yield from source.skip_white_space()
        first = False
    source.take(len(end))
    emit("}")


def escaped(text: str, *, whole: bool = False) -> str:
    """A text, or a piece of one, as JSON has it between quotes. whole: with the quotes."""
    said = json.dumps(text, ensure_ascii=False)
    said = HALVES.sub(lambda half: f"\\u{ord(half[0]):04x}", said)
    return said if whole else said[1:-1]


def scalar(text: str) -> str:
    """A value without quotes in JSON: a number or a name; a word of no meaning is a string."""
    if text in NAMED:
        return NAMED[text]
    if NUMBER.fullmatch(text):
        return text
    for number_of in (int, float):
        with suppress(ValueError):
            number = number_of(text)
            return repr(number) if math.isfinite(number) else escaped(text, whole=True)
    return escaped(text, whole=True)


def _begins(source: Source, notation: Notation, closing: list[str], emit: Emit) -> Reading[bool]:
    """Takes a value that holds no others, or what opens one; returns whether a value or key comes next."""
    yield from source.skip_white_space()
    opened = yield from source.starts_with(tuple(CLOSING))
    if opened is None:
        yield from _leaf(source, notation, emit)
        return False
    source.take(1)
    emit(IN_JSON[opened])
    closing.append(CLOSING[opened])
    yield from source.skip_white_space()
    return (yield from source.starts_with((closing[-1],))) is None


def _key(source: Source, notation: Notation, emit: Emit) -> Reading[None]:
    """Takes an object's key and the colon behind it."""
    yield from source.skip_white_space()
    quote = yield from source.starts_with(_quotes(notation))
    if quote is not None:
        yield from _string(source, quote, notation, emit)
        yield from source.skip_white_space()
        yield from source.expect(":")
    else:
        key: list[str] = []
        if (yield from source.until((":", "}"), key.append)) != ":":
            raise Malformed
        emit(escaped("".join(key).strip(), whole=True))
    emit(": ")


def _leaf(source: Source, notation: Notation, emit: Emit) -> Reading[None]:
    quote = yield from source.starts_with(_quotes(notation))
    if quote is not None:
        yield from _string(source, quote, notation, emit)
        return
    text: list[str] = []
    while (found := SCALAR_ENDS.search(source.text)) is None:
        text.append(source.take(len(source.text)))
        if not (yield from source.more()):
            raise Malformed
    text.append(source.take(found.start()))
    if not (word := "".join(text)):
        raise Malformed
    emit(scalar(word))


def _quotes(notation: Notation) -> tuple[str, ...]:
    """What may begin a string, the longer first."""
    return (*filter(None, (notation.quote,)), '"""', "'''", '"', "'")


def _string(source: Source, quote: str, notation: Notation, emit: Emit) -> Reading[None]:
    """Takes a string that begins with `quote`."""
    source.take(len(quote))
    emit('"')
    marks = (quote,) if quote == notation.quote else (quote, "\\")
    while (mark := (yield from source.until(marks, lambda text: emit(escaped(text))))) == "\\":
        emit(escaped((yield from _escape(source))))
    if mark is None:
        raise Malformed
    emit('"')


def _escape(source: Source) -> Reading[str]:
    """Takes what follows a backslash, as Python and JSON have it, and returns what it means."""
    while not source.text:
        if not (yield from source.more()):
            raise Malformed
    kind = source.take(1)
    if kind in DIGITS:
        count = DIGITS[kind]
        while len(source.text) < count:
            if not (yield from source.more()):
                raise Malformed
        digits = source.take(count)
        try:
            return chr(int(digits, 16))
        except (ValueError, OverflowError):
            return f"\\{kind}{digits}"
    if kind in "\"'\\/":
        return kind
    return ESCAPES.get(kind, f"\\{kind}")
