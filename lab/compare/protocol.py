"""What passes between a comparison and the process that makes a run: lines of JSON."""

from __future__ import annotations

from typing import Any

import msgspec

from turnout.lab.compare.run import Run

__all__ = ["Done", "Failed", "Message", "Progress", "Task"]


class Task(msgspec.Struct, frozen=True):
    """Make this run. One line on standard input, which stays open as long as the comparison lives."""

    arm: str
    repeat: int
    config: dict[str, Any]
    """Fields of `EngineConfig` that are set."""
    workload: str
    seed: int
    warm_up: int
    temperature: float | None


class Progress(msgspec.Struct, frozen=True, tag=True):
    """So many requests have ended."""

    done: int
    total: int


class Done(msgspec.Struct, frozen=True, tag=True):
    run: Run


class Failed(msgspec.Struct, frozen=True, tag=True):
    message: str
    asked_wrongly: bool
    """What was asked for cannot work; else something broke."""


Message = Progress | Done | Failed
"""Lines on standard output; the last is `Done` or `Failed`."""
