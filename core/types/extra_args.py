"""Extra arguments: what a client passes to plugins, by names that they declare."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping

from turnout.core.errors import RequestError, did_you_mean

__all__ = ["ExtraArg", "check_extra_args", "check_known"]

ExtraArg = str | int | float | bool | list[str | int | float | bool]
FIELD = "extra_args"


def check_extra_args(given: object) -> None:
    """Raises RequestError for extra arguments that are not plain data."""
    if not isinstance(given, dict) or not all(isinstance(name, str) for name in given):
        raise RequestError("extra arguments must be an object: names, and their values", FIELD)
    for name, value in given.items():
        if not all(map(_plain, value if isinstance(value, list) else [value])):
            raise RequestError(
                f"the extra argument {_short(name)} must be a string, a number, a boolean or a list of "
                "those; integers have 64 bits",
                FIELD,
            )


def check_known(given: Mapping[str, ExtraArg], known: Collection[str]) -> None:
    """Raises RequestError for a name that no plugin takes."""
    for name in given:
        if name not in known:
            listed = ", ".join(sorted(known)) or "none"
            raise RequestError(
                f"no plugin takes the extra argument {_short(name)}; known: {listed}"
                f"{did_you_mean(name[:40], known)}",
                FIELD,
            )


def _plain(value: object) -> bool:
    """Whether a value can be sent to the engine as it is."""
    if isinstance(value, int):
        return -(2**63) <= value < 2**63
    return isinstance(value, str) or (isinstance(value, float) and math.isfinite(value))


def _short(name: str) -> str:
    return repr(name if len(name) <= 40 else f"{name[:37]}...")
