"""Reads JSON that comes in pieces: strings whole, other values as the text that they are."""

from __future__ import annotations

import json
import re
from collections.abc import Callable

from turnout.text.output.reading.source import Malformed, Reading, Source
from turnout.text.output.reading.values import HALVES

__all__ = ["read_object", "read_string", "rest_of_string", "skip_value"]

STRUCTURE = re.compile(r'["{}\[\]]')
"""Outside strings, what opens or closes something."""
STRING_ENDS = re.compile(r'["\\]')
SCALAR_ENDS = re.compile(r"[,}\]\s]")


def read_object(source: Source, emit: Callable[[str], None]) -> Reading[None]:
    """Takes an object or a list; its text goes to `emit` as it comes. Raises Malformed where none is."""
    if (yield from source.starts_with(("{", "["))) is None:
        raise Malformed
    depth = 0
    while True:
        found = STRUCTURE.search(source.text)
        if found is None:
            if source.text:
                emit(source.take(len(source.text)))
            if not (yield from source.more()):
                raise Malformed
            continue
        emit(source.take(found.end()))
        mark = found[0]
        if mark == '"':
            yield from rest_of_string(source, emit)
        elif mark in "{[":
            depth += 1
        else:
            depth -= 1
            if depth == 0:
                return


def read_string(source: Source) -> Reading[str]:
    """Takes a string, and returns what it says. Raises Malformed where none is."""
    pieces: list[str] = []
    yield from source.expect('"')
    yield from rest_of_string(source, pieces.append)
    try:
        said: str = json.loads('"' + "".join(pieces), strict=False)
    except ValueError:
        raise Malformed from None
    if HALVES.search(said):
        raise Malformed
    return said


def skip_value(source: Source) -> Reading[None]:
    """Takes any value."""
    first = yield from source.starts_with(("{", "[", '"'))
    if first == '"':
        yield from read_string(source)
    elif first is not None:
        yield from read_object(source, lambda _: None)
    else:
        while (found := SCALAR_ENDS.search(source.text)) is None:
            source.take(len(source.text))
            if not (yield from source.more()):
                raise Malformed
        source.take(found.start())


def rest_of_string(source: Source, emit: Callable[[str], None]) -> Reading[None]:
    """Takes a string from behind its opening quote on, with the closing one."""
    while True:
        found = STRING_ENDS.search(source.text)
        if found is None:
            if source.text:
                emit(source.take(len(source.text)))
        elif found[0] == '"':
            emit(source.take(found.end()))
            return
        elif len(source.text) > found.end():  # a backslash and what it escapes
            emit(source.take(found.end() + 1))
            continue
        elif found.start():
            emit(source.take(found.start()))
        if not (yield from source.more()):
            raise Malformed
