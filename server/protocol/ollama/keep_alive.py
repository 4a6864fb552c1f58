"""How long Ollama's clients want a model to stay loaded."""

from __future__ import annotations

import math
import re
from typing import Annotated

from pydantic import BeforeValidator

__all__ = ["KeepAlive"]

UNITS = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1, "m": 60, "h": 3600, "": 1}
PART = re.compile(r"(\d+\.?\d*|\.\d+)(ns|us|µs|ms|s|m|h|)")
LONGEST = 64
"""Characters."""
LONGEST_SECONDS = 10**12
"""More is as much: an integer may be too large for a float."""


def _seconds(value: object) -> object:
    """Seconds of a number, or of a duration in Go's form such as ``1h30m``; negative ones mean for ever."""
    if isinstance(value, str):
        sign, text = value[:1] == "-", value.lstrip("+-")
        parts = PART.findall(text) if len(text) <= LONGEST else []
        if not parts or "".join(map("".join, parts)) != text:
            raise ValueError("a number of seconds, or a duration such as '5m' or '1h30m', is expected")
        value = math.inf if sign else sum(float(number) * UNITS[unit] for number, unit in parts)
    elif isinstance(value, int | float) and not isinstance(value, bool):
        if value != value:
            raise ValueError("a number of seconds is expected")
        value = math.inf if value < 0 else float(min(value, LONGEST_SECONDS))
    return value


KeepAlive = Annotated[float | None, BeforeValidator(_seconds, json_schema_input_type=float | str | None)]
"""Seconds; infinite: for ever; None: as the server does."""
