"""The messages between a comparison and the process that does a part of it: lines of JSON."""

from __future__ import annotations

from typing import Any

import msgspec

from turnout.lab.compare.runs.run import Run
from turnout.lab.quality.deviation import Deviation

__all__ = [
    "Incomparable",
    "Message",
    "Order",
    "QualityResult",
    "QualityTask",
    "RunDone",
    "RunFailed",
    "RunProgress",
    "RunTask",
]


class RunTask(msgspec.Struct, frozen=True, tag=True):
    """An order to make a run."""

    arm: str
    repeat: int
    config: dict[str, Any]
    """Fields of `EngineConfig` that are set."""
    workload: str
    seed: int
    warm_up: int
    temperature: float | None
    trace: str = ""
    """The file to write a trace of the run to; empty: none is kept."""


class QualityTask(msgspec.Struct, frozen=True, tag=True):
    """An order to measure how far the second engine's predictions are from the first one's."""

    configs: tuple[dict[str, Any], dict[str, Any]]
    """Fields of `EngineConfig`, those that decide what is predicted."""
    text: str
    tokens: int
    """Of the text, at most."""


Order = RunTask | QualityTask
"""One line on standard input, which stays open as long as the comparison lives."""


class RunProgress(msgspec.Struct, frozen=True, tag=True):
    """The number of requests that have ended."""

    done: int
    total: int


class RunDone(msgspec.Struct, frozen=True, tag=True):
    run: Run


class QualityResult(msgspec.Struct, frozen=True, tag=True):
    deviation: Deviation


class Incomparable(msgspec.Struct, frozen=True, tag=True):
    """There is no distance between the two engines' predictions."""

    reason: str


class RunFailed(msgspec.Struct, frozen=True, tag=True):
    message: str
    is_config_error: bool
    """The order cannot be carried out as given; otherwise something broke."""


Message = RunProgress | RunDone | QualityResult | Incomparable | RunFailed
"""Lines on standard output; the last is any but `RunProgress`."""
