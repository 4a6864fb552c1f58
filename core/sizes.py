"""Sizes in bytes, as people write them: ``512MiB``, ``2GB``, ``4g``."""

from __future__ import annotations

import re
from typing import Annotated

from pydantic import BeforeValidator, Field

from turnout.core.errors import shortened

__all__ = ["ByteSize", "SizeOrZero", "parse_bytes"]

MOST = 2**63 - 1
"""Bytes. Sums with more could not be told."""
_UNITS = {
    "": 1,
    "b": 1,
    "k": 2**10,
    "m": 2**20,
    "g": 2**30,
    "t": 2**40,
    "kb": 10**3,
    "mb": 10**6,
    "gb": 10**9,
    "tb": 10**12,
}
_UNITS |= {f"{letter}ib": _UNITS[letter] for letter in "kmgt"}


def parse_bytes(text: object) -> object:
    """``2GiB`` (or ``2g``) is 2 * 2**30, ``2GB`` is 2 * 10**9; numbers are bytes."""
    size = _size_of(text) if isinstance(text, str) else text
    if not isinstance(size, float | int):
        return size
    if size > MOST:
        raise ValueError("the size is beyond all bounds")
    return int(size) if isinstance(text, str) else size


def _size_of(text: str) -> float:
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([a-z]*)\s*", text.lower())
    if match is None or match[2] not in _UNITS:
        raise ValueError(
            f"{shortened(text)} is not a size; expected a number with a unit, such as 512MiB or 2GiB"
        )
    return float(match[1]) * _UNITS[match[2]]


ByteSize = Annotated[int, BeforeValidator(parse_bytes), Field(gt=0)]
SizeOrZero = Annotated[int, BeforeValidator(parse_bytes), Field(ge=0)]
"""A size that may be 0."""
