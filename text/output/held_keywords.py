"""What the compiler of grammars cannot hold of a JSON schema, though it may seem to."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from itertools import chain
from typing import Any, TypeGuard

from turnout.text.output.expressions import compiled_parts
from turnout.text.output.json_notation import parts_of, with_parts

__all__ = ["check_numbers", "loosened", "narrowed"]

EXACT = 2**53
"""The compiler has numbers as float64: beyond this, another than the one that is meant."""
MOST = 2**63 - 1024
"""The largest bound that it can have, which float64 has."""
LOWER, UPPER = ("minimum", "exclusiveMinimum"), ("maximum", "exclusiveMaximum")
VALUES = ("enum", "const")
KEYS_BY_PATTERN = ("patternProperties", "additionalProperties")


def check_numbers(schema: Any) -> None:
    """Raises ValueError for a whole number, as a value or a bound, that would become another."""
    for key, value in chain.from_iterable(part.items() for part in parts_of(schema)):
        for number in _inexact(value) if _is_far(key, value) or key in VALUES else ():
            raise ValueError(
                f"{key} has {number}, and numbers beyond 2^53 = {EXACT} are not held exactly; use smaller "
                "ones, or strings"
            )


def narrowed(schema: Any) -> Any:
    """A schema whose bounds of large numbers are those next to them, inside, that the compiler can have.

    Schemas of 64-bit integers have such bounds.
    """

    def narrow(part: Mapping[str, Any]) -> dict[str, Any]:
        changed = dict(part)
        for key in UPPER:
            if _is_number(value := part.get(key)) and value > EXACT:
                changed[key] = _float_below(min(value, MOST))
        for key in LOWER:
            if _is_number(value := part.get(key)) and value < -EXACT:
                changed[key] = -_float_below(min(-value, MOST))
        return changed

    return with_parts(schema, narrow)


def loosened(schema: Any) -> Any:
    """A schema without the keywords that cannot be held."""

    def held(part: Mapping[str, Any]) -> dict[str, Any]:
        kept = {key: value for key, value in part.items() if not _is_lost(key, value)}
        by_pattern = kept.get("patternProperties")
        if isinstance(by_pattern, Mapping) and any(compiled_parts(pattern) is None for pattern in by_pattern):
            # The keys that it stands for may be any.
            return {key: value for key, value in kept.items() if key not in KEYS_BY_PATTERN}
        return kept

    return with_parts(schema, held)


def _is_lost(key: str, value: Any) -> bool:
    if key == "pattern":
        return isinstance(value, str) and compiled_parts(value) is None
    return _is_far(key, value) or (key in VALUES and any(True for _ in _inexact(value)))


def _is_far(key: str, value: Any) -> bool:
    """Whether it is a bound beyond which there are only numbers that are not held exactly."""
    if not _is_number(value):
        return False
    if key in UPPER:
        return value < -EXACT
    return value > EXACT and (key in LOWER or key == "multipleOf")


def _is_number(value: Any) -> TypeGuard[int | float]:
    return isinstance(value, int | float)


def _float_below(number: float) -> int:
    """The largest whole number up to a positive one that float64 has."""
    found = float(number)
    return int(found if found <= number else math.nextafter(found, 0))


def _inexact(value: Any) -> Iterator[int]:
    """The whole numbers in a value that float64 has not."""
    if isinstance(value, int):
        if abs(value) > EXACT:
            yield value
    elif isinstance(value, list):
        for item in value:
            yield from _inexact(item)
    elif isinstance(value, Mapping):
        for item in value.values():
            yield from _inexact(item)
