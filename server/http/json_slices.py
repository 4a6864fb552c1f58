"""Encodes large responses in slices, between which other threads run.

The encoder holds Python's lock while it encodes: half a second for 200 MB, in which no client gets a token.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec

__all__ = ["encode_in_slices"]

SLICE = 1024
"""Items of a list that are encoded at once."""


def encode_in_slices(content: msgspec.Struct) -> bytes:
    """The bytes that `msgspec.json.encode` gives."""
    return msgspec.json.encode(_sliced(content))


def _sliced(value: Any) -> Any:
    """A value whose long lists, and structs in lists, are encoded already."""
    if isinstance(value, msgspec.Struct):
        fields = {name: getattr(value, name) for name in value.__struct_fields__}
        changed = {
            name: new
            for name, old in fields.items()
            if isinstance(old, list | msgspec.Struct) and (new := _sliced(old)) is not old
        }
        return msgspec.structs.replace(value, **changed) if changed else value
    if len(value) > SLICE:
        slices = (value[start : start + SLICE] for start in range(0, len(value), SLICE))
        return _array(msgspec.json.encode(items)[1:-1] for items in slices)
    if value and isinstance(value[0], msgspec.Struct):
        return _array(encode_in_slices(item) for item in value)
    return value


def _array(parts: Iterable[bytes]) -> msgspec.Raw:
    return msgspec.Raw(b"[" + b",".join(parts) + b"]")
