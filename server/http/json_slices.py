"""Encodes large responses in slices, between which other threads run.

The encoder holds Python's lock while it encodes: half a second for 200 MB, in which no client gets a token.
And such a response is never in memory as a whole: what it is made of is read a slice at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import chain
from typing import Any, Generic, TypeVar, overload

import msgspec

__all__ = ["Chained", "Lazily", "encoded_pieces"]

SLICE = 256
"""Items of a list that are encoded at once."""
MARK = b"\0"
"""Stands for a part that is encoded by itself. No JSON has this byte: in a string it is escaped."""

Source = TypeVar("Source")
Item = TypeVar("Item", covariant=True)


class Lazily(Sequence[Item], Generic[Source, Item]):
    """Items that are made each time they are read."""

    def __init__(self, sources: Sequence[Source], make: Callable[[Source], Item]) -> None:
        self._sources, self._make = sources, make

    def __len__(self) -> int:
        return len(self._sources)

    @overload
    def __getitem__(self, index: int) -> Item: ...

    @overload
    def __getitem__(self, index: slice) -> list[Item]: ...

    def __getitem__(self, index: int | slice) -> Item | list[Item]:
        if isinstance(index, slice):
            return [self._make(source) for source in self._sources[index]]
        return self._make(self._sources[index])


class Chained(Sequence[Item]):
    """Sequences, one after the other."""

    def __init__(self, *parts: Sequence[Item]) -> None:
        self._parts = parts

    def __len__(self) -> int:
        return sum(map(len, self._parts))

    @overload
    def __getitem__(self, index: int) -> Item: ...

    @overload
    def __getitem__(self, index: slice) -> list[Item]: ...

    def __getitem__(self, index: int | slice) -> Item | list[Item]:
        if not isinstance(index, slice):
            return self[range(len(self))[index] :][0]
        start, stop, step = index.indices(len(self))
        found: list[Item] = []
        for part in self._parts:
            found += part[max(start, 0) : max(stop, 0)]
            start, stop = start - len(part), stop - len(part)
        return found[::step]


def encoded_pieces(content: msgspec.Struct) -> Iterator[bytes]:
    """The bytes that `msgspec.json.encode` gives, in pieces."""
    return _struct(content) if _is_large(content) else iter((msgspec.json.encode(content),))


def _is_large(value: object) -> bool:
    """Whether a value is encoded by parts."""
    if isinstance(value, msgspec.Struct):
        return any(_is_large(getattr(value, name)) for name in value.__struct_fields__)
    if isinstance(value, list):
        return len(value) > SLICE or (
            bool(value) and isinstance(value[0], msgspec.Struct) and any(map(_is_large, value))
        )
    return isinstance(value, Lazily | Chained)


def _pieces(value: Any) -> Iterator[bytes]:
    return _struct(value) if isinstance(value, msgspec.Struct) else _array(value)


def _struct(value: msgspec.Struct) -> Iterator[bytes]:
    fields = {name: getattr(value, name) for name in value.__struct_fields__}
    large = {name: field for name, field in fields.items() if _is_large(field)}
    frame = msgspec.structs.replace(value, **dict.fromkeys(large, msgspec.Raw(MARK)))
    begin, *between = msgspec.json.encode(frame).split(MARK)
    yield begin
    for part, after in zip(large.values(), between, strict=True):
        yield from _pieces(part)
        yield after


def _array(values: Sequence[Any]) -> Iterator[bytes]:
    before = b"["
    for start in range(0, len(values), SLICE):
        items = values[start : start + SLICE]
        if _is_large(items):
            for item in items:
                yield from chain((before,), _pieces(item))
                before = b","
        else:
            yield before + msgspec.json.encode(items)[1:-1]
            before = b","
    yield b"]" if len(values) else b"[]"
