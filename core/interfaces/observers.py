"""The observer interface: the records of steps, of what happens to requests, and of an engine's end."""

from __future__ import annotations

from abc import ABC
from collections.abc import Callable
from typing import NamedTuple

import msgspec

from turnout.core.interfaces.figures import Figures
from turnout.core.types.request import Timing

__all__ = [
    "ArrivalRecord",
    "EngineRecord",
    "Observer",
    "PreemptionRecord",
    "RequestRecord",
    "StepRecord",
    "WatchingHook",
]


class StepRecord(msgspec.Struct, frozen=True, kw_only=True):
    """One step of the engine."""

    number: int
    """The number of the step, from the start of the engine."""
    started: float
    """When the step began, in seconds on the engine's clock."""
    ended: float
    """When the step ended."""
    tokens: int
    """Tokens run through the model."""
    rows: int
    """Rows of logits, by which strategies chose tokens or verified draft tokens."""
    sequences: int
    """How many sequences computed tokens."""
    running: int
    """How many requests run, after the step."""
    waiting: int
    """How many requests wait, after the step."""
    kv_free: int
    """Free token positions of the KV pool, after the step."""
    arm: str = ""
    """The arm of a live A/B test that the engine serves; empty without one."""
    replica: str = ""
    """The name of the engine among several, as in a simulation; empty for one alone."""


class RequestRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A request that has ended."""

    id: str
    """As ``RequestView.id``."""
    client: str
    """As ``RequestView.client``."""
    priority: int
    """As the client gave it."""
    prompt_tokens: int
    """The length of the prompt."""
    cached_tokens: int
    """How many of them were cached when the request was admitted."""
    output_tokens: int
    """Output tokens, over all choices."""
    finish_reason: str
    """Why the last choice ended: ``stop``, ``length``, ``abort`` or ``error``."""
    timing: Timing
    """When things happened to the request."""
    arm: str = ""
    """The arm of a live A/B test that the engine serves; empty without one."""
    replica: str = ""
    """The name of the engine among several, as in a simulation; empty for one alone."""


class ArrivalRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A request that was admitted to the queue. One that was refused has no record."""

    id: str
    """As ``RequestView.id``."""
    client: str
    """As ``RequestView.client``."""
    priority: int
    """As the client gave it."""
    prompt_tokens: int
    """The length of the prompt."""
    max_tokens: int
    """Output tokens of one choice, at most."""
    arrival: float
    """When it arrived, in seconds on the engine's clock."""
    waiting: int
    """How many requests wait, this one included."""
    arm: str = ""
    """The arm of a live A/B test that the engine serves; empty without one."""
    replica: str = ""
    """The name of the engine among several, as in a simulation; empty for one alone."""


class PreemptionRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A running request that had to give way; it waits now, to go on later."""

    id: str
    """As ``RequestView.id``."""
    client: str
    """As ``RequestView.client``."""
    at: float
    """When, in seconds on the engine's clock."""
    preemptions: int
    """How often it has been preempted by now."""
    output_tokens: int
    """Output tokens so far, over all choices."""
    arm: str = ""
    """The arm of a live A/B test that the engine serves; empty without one."""
    replica: str = ""
    """The name of the engine among several, as in a simulation; empty for one alone."""


class EngineRecord(msgspec.Struct, frozen=True, kw_only=True):
    """An engine that ends. There is none of an engine whose process was killed."""

    steps: int
    """Steps that it computed."""
    output_tokens: int
    """Output tokens of all its requests."""
    arm: str = ""
    """The arm of a live A/B test that the engine serves; empty without one."""
    replica: str = ""
    """The name of the engine among several, as in a simulation; empty for one alone."""


class Observer(ABC):
    """Watches an engine. Each method is called only if it is overridden, in the engine's process.

    The arguments of an observer's constructor are its options: ``--observer NAME:option=value``.
    """

    def step_finished(self, step: StepRecord) -> None:
        """Called after each step; must be fast."""

    def request_arrived(self, request: ArrivalRecord) -> None:
        """Called when a request has been admitted, before its first step."""

    def request_preempted(self, request: PreemptionRecord) -> None:
        """Called when a running request had to give way."""

    def request_finished(self, request: RequestRecord) -> None:
        """Called when a request has ended, however it did."""

    def engine_closed(self, engine: EngineRecord) -> None:
        """Called when the engine ends; the last call, unless the process is killed."""

    def figures(self) -> Figures:
        """Returns counters and gauges for `GET /metrics`, asked for a few times a second. None by default."""
        return Figures()


class WatchingHook(NamedTuple):
    """A function or method to call, and its name."""

    name: str
    """The name in messages."""
    hook: Callable[..., object]
    """Called with ``step=``, ``request=`` or ``engine=``, a record."""
