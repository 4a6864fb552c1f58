"""Decodes large JSON in slices, between which other threads run.

The decoder holds Python's lock for as long as a call takes: 80 ms for two million numbers, in which no client
gets a token.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import msgspec

__all__ = ["decode_in_slices"]

SLICE = 2**15
"""Bytes that are decoded at once, in less than a millisecond."""
LEVELS = 3
"""Lists within lists that are sliced. Below them a value is decoded at once."""
MARK = re.compile(rb'[\["{]')
MARK_OR_COMMA = re.compile(rb'[\["{,]')
BRACKET = re.compile(rb'[\[\]{}"]')
PLAIN = re.compile(rb'[^"\\]*+(?:\\.[^"\\]*+)*+', re.DOTALL)
"""The characters of a string before its end."""
SPACE = re.compile(rb"[ \t\r\n]*+")


def decode_in_slices(text: bytes | bytearray) -> dict[str, Any]:
    """What `msgspec.json.decode` gives for an object, and what it raises; not where in a slice."""
    fields = msgspec.json.decode(text, type=dict[str, msgspec.Raw])  # finds what is malformed, within 10 ms
    return {name: _decoded(memoryview(value), 0) for name, value in fields.items()}


def _decoded(text: memoryview, level: int) -> Any:
    """A value, known to be well-formed, without white space around it."""
    if len(text) <= SLICE or text[0] != ord("[") or level == LEVELS:
        return msgspec.json.decode(text)
    values: list[Any] = []
    for part, alone in _parts(text):
        if alone:
            values.append(_decoded(part, level + 1))
        else:
            values += msgspec.json.decode(b"".join((b"[", part, b"]")))
    return values


def _parts(text: memoryview) -> Iterator[tuple[memoryview, bool]]:
    """The items of a list in order: runs of short ones, and long ones, each alone (True)."""
    begin, at, end = 1, 1, len(text) - 1
    while at < end:
        mark = MARK.search(text, at, min(at + SLICE, end))
        if mark is None:  # numbers
            at = min(at + SLICE, end)
        else:
            start, at = mark.start(), _end(text, mark.start())
            if at - start > SLICE:
                if (before := _without_comma(text, begin, start)) > begin:
                    yield text[begin:before], False
                yield text[start:at], True
                begin = at = _after_comma(text, at, end)
                continue
        if at - begin >= SLICE:
            comma = MARK_OR_COMMA.search(text, at, end)
            if comma is not None and text[comma.start()] == ord(","):
                yield text[begin : comma.start()], False
                begin = at = comma.end()
    if begin < end:
        yield text[begin:end], False


def _without_comma(text: memoryview, begin: int, end: int) -> int:
    """Where the items before a value end: at their last comma."""
    while end > begin and text[end - 1] != ord(","):
        end -= 1
    return max(begin, end - 1)


def _after_comma(text: memoryview, at: int, end: int) -> int:
    space = SPACE.match(text, at, end)
    return min(end, (space.end() if space else at) + 1)


def _end(text: memoryview, start: int) -> int:
    """Where a string, a list or an object ends that starts there."""
    if text[start] == ord('"'):
        return _string_end(text, start + 1)
    depth, at = 0, start
    while True:
        bracket = BRACKET.search(text, at, at + SLICE)
        if bracket is None:
            at += SLICE
        elif (kind := text[bracket.start()]) == ord('"'):
            at = _string_end(text, bracket.end())
        else:
            depth += 1 if kind in b"[{" else -1
            at = bracket.end()
            if not depth:
                return at


def _string_end(text: memoryview, at: int) -> int:
    while True:
        plain = PLAIN.match(text, at, at + SLICE)
        assert plain is not None  # it matches nothing, too
        at = plain.end()
        if text[at] == ord('"'):
            return at + 1
