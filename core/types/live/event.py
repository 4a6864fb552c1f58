"""The events that watchers of engines get, and the file that keeps them."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from turnout.core.types.live.news import (
    LiveKV,
    LiveRequest,
    LiveStats,
    Progress,
    SpanNews,
    StepTrace,
)

__all__ = ["LiveEngine", "LiveEvent", "TraceFile"]


class LiveEngine(msgspec.Struct, kw_only=True, omit_defaults=True):
    """What an event tells of one engine."""

    model: str
    name: str
    """Names the engine among all of the server."""
    arm: str = ""
    replica: str
    state: str
    began: bool = False
    """Forget what was known of its requests: another engine has taken its place."""
    scheduler: str = ""
    policies: dict[str, str] = {}
    stats: LiveStats = LiveStats()
    requests: list[LiveRequest] = []
    progress: list[Progress] = []
    spans: list[SpanNews] = []
    steps: list[StepTrace] = []
    kv: LiveKV | None = None


class LiveEvent(msgspec.Struct, kw_only=True, omit_defaults=True):
    """An event of `GET /admin/live`, and of a trace file."""

    at: float
    first: bool = False
    """What was known before does not count any more."""
    engines: list[LiveEngine] = []
    arms: Any = None
    """As `GET /admin/ab` answers."""


class TraceFile(msgspec.Struct, kw_only=True):
    """A recorded or simulated run, for ``turnout view``."""

    turnout_trace: Literal[1] = 1
    events: list[LiveEvent]
