"""The events that watchers of engines get, and the file that keeps them."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from turnout.core.types.live.news import (
    Breadth,
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
    """The model that it serves."""
    name: str
    """Names the engine among all of the server."""
    arm: str = ""
    """Its arm of a live test."""
    replica: str
    """Its name among the replicas."""
    state: str
    """As `/admin/replicas` says; `gone`: it is no more."""
    began: bool = False
    """What was known of its requests does not count any more: another engine has taken its place."""
    scheduler: str = ""
    """The scheduling policy, as `--scheduler` has it."""
    policies: dict[str, str] = {}
    """The policies of all kinds, with `first` and `began`."""
    stats: LiveStats = LiveStats()
    """How many steps, requests and tokens, as `Stats` counts them."""
    requests: list[LiveRequest] = []
    """Those that came, ended or changed."""
    progress: list[Progress] = []
    """News of the others: id, state, `computed`, `output_tokens` and `preemptions`."""
    spans: list[SpanNews] = []
    """Phases of requests: id, phase, start, and end, or null while it goes on."""
    breadths: list[Breadth] = []
    """Of requests with several sequences: id, a time, and how many of them run from then on."""
    steps: list[StepTrace] = []
    """Those computed since the event before."""
    kv: LiveKV | None = None
    """The KV pool, once a second at most: its `runs` are cells of `cell` blocks each."""


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
