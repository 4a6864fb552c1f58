"""Reads calls whose arguments stand between tags."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, NoReturn

from turnout.core.types.output_format import XmlCall
from turnout.text.output.argument_schemas import type_of
from turnout.text.output.reading.json_values import rest_of_string
from turnout.text.output.reading.source import Malformed, Reading, Source
from turnout.text.output.reading.values import NAMED, escaped
from turnout.text.output.schema_keywords import ALL_TYPES
from turnout.text.output.tools import Tool

__all__ = ["read_arguments", "read_name"]

Emit = Callable[[str], None]
BARE = {"string", "null"}


def read_name(source: Source, body: XmlCall, close: str) -> Reading[str]:
    """Takes what stands before the arguments, and returns the tool's name. Raises Malformed where none is."""
    if body.before:
        yield from source.expect(body.before)
    name: list[str] = []
    later = [marker for marker in (body.key[0], close) if marker]  # where a call lacks what ends the name
    found = yield from source.until([body.after, *later], name.append)
    if found is None:
        raise Malformed
    if found != body.after:
        source.put_back(found)
    return "".join(name).strip()


def read_arguments(source: Source, body: XmlCall, tool: Tool | None, emit: Emit) -> Reading[None]:
    """Takes the arguments; their JSON goes to `emit`. Raises Malformed for what are none."""
    emit("{")
    first = True
    while (yield from source.comes_first((body.key[0],))) is not None:
        source.take(len(body.key[0]))
        key: list[str] = []
        if (yield from source.until([body.key[1]], key.append)) is None:
            raise Malformed
        name = "".join(key).strip()
        emit(f"{'' if first else ', '}{escaped(name, whole=True)}: ")
        yield from _value(source, body, _types(tool, name), emit)
        first = False
    if body.end:
        yield from source.skip_white_space()
        yield from source.expect(body.end)
    emit("}")


def _value(source: Source, body: XmlCall, types: frozenset[str], emit: Emit) -> Reading[None]:
    if body.value[0]:
        yield from source.skip_white_space()
        yield from source.expect(body.value[0])
    end = body.value[1]
    if body.lines and (yield from source.starts_with(("\n",))) is not None:
        source.take(1)
    ends = ["\n" + end, end] if body.lines else [end]
    if types == {"string"}:
        emit('"')
        if (yield from source.until(ends, lambda text: emit(escaped(text)))) is None:
            raise Malformed
        emit('"')
        return
    pieces: list[str] = []
    # Strings within a list or an object may hold what ends a value.
    opened = None if types <= BARE else (yield from source.starts_with(("{", "[", '"')))
    marks = ends if opened is None else [*ends, '"']
    while (mark := (yield from source.until(marks, pieces.append))) == '"':
        pieces.append(mark)
        yield from rest_of_string(source, pieces.append)
    if mark is None:
        raise Malformed
    emit(_read("".join(pieces), types))


def _types(tool: Tool | None, name: str) -> frozenset[str]:
    return ALL_TYPES if tool is None else tool.schemas.types(tool.schemas.property(name))


def _read(text: str, types: frozenset[str]) -> str:
    """The JSON of a value: as it is written, if it is of a type that is wanted, else a string.

    A string stands as it is where the value may be nothing else but null: its quotes are its own.
    """
    said = NAMED.get(text.strip(), text.strip())
    try:
        value: Any = json.loads(said, parse_int=lambda _: 0, parse_float=lambda _: 0.5, parse_constant=_none)
    except (ValueError, RecursionError):
        return escaped(text, whole=True)
    kind = type_of(value)
    if kind == "string" and types <= BARE:
        return escaped(text, whole=True)
    if kind in types or (kind == "integer" and "number" in types) or "string" not in types:
        return said
    return escaped(text, whole=True)


def _none(name: str) -> NoReturn:
    raise ValueError(f"{name} is no JSON")
