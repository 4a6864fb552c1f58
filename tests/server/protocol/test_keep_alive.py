"""Ollama's `keep_alive`: seconds, or a duration as Go writes it."""

from __future__ import annotations

import math

import pytest
from pydantic import TypeAdapter, ValidationError

from turnout.server.protocol.ollama.keep_alive import KeepAlive

SECONDS = TypeAdapter(KeepAlive)


@pytest.mark.parametrize(
    ("given", "seconds"),
    [
        (None, None),
        (0, 0),
        ("0", 0),
        ("5m", 300),
        ("1h30m", 5400),
        ("1.5s", 1.5),
        ("250ms", 0.25),
        (-1, math.inf),
        ("-1m", math.inf),
    ],
)
def test_durations_are_seconds(given: object, seconds: float | None) -> None:
    assert SECONDS.validate_python(given) == seconds


@pytest.mark.parametrize("given", ["soon", "5 m", "m5", "", "5y", "1" * 65, True, [], math.nan])
def test_what_is_no_duration_is_refused(given: object) -> None:
    with pytest.raises(ValidationError):
        SECONDS.validate_python(given, strict=True)
