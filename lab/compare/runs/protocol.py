"""What passes between a comparison and the process that does a part of it: lines of JSON."""

from __future__ import annotations

from typing import Any

import msgspec

from turnout.lab.compare.runs.run import Run
from turnout.lab.quality.deviation import Deviation

__all__ = ["Done", "Failed", "Incomparable", "Judge", "Judged", "Message", "Order", "Progress", "Task"]


class Task(msgspec.Struct, frozen=True, tag=True):
    """Make this run."""

    arm: str
    repeat: int
    config: dict[str, Any]
    """Fields of `EngineConfig` that are set."""
    workload: str
    seed: int
    warm_up: int
    temperature: float | None


class Judge(msgspec.Struct, frozen=True, tag=True):
    """Say how far the second engine's predictions are from the first one's."""

    configs: tuple[dict[str, Any], dict[str, Any]]
    """Fields of `EngineConfig`, those that decide what is predicted."""
    text: str
    tokens: int
    """Of the text, at most."""


Order = Task | Judge
"""One line on standard input, which stays open as long as the comparison lives."""


class Progress(msgspec.Struct, frozen=True, tag=True):
    """So many requests have ended."""

    done: int
    total: int


class Done(msgspec.Struct, frozen=True, tag=True):
    run: Run


class Judged(msgspec.Struct, frozen=True, tag=True):
    deviation: Deviation


class Incomparable(msgspec.Struct, frozen=True, tag=True):
    """There is no such thing as a distance between the two."""

    reason: str


class Failed(msgspec.Struct, frozen=True, tag=True):
    message: str
    asked_wrongly: bool
    """What was asked for cannot work; else something broke."""


Message = Progress | Done | Judged | Incomparable | Failed
"""Lines on standard output; the last is any but `Progress`."""
