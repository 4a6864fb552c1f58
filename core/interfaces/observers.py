"""The observer interface: the records of each step, and of each request that ended."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import msgspec

from turnout.core.types.request import Timing

__all__ = ["Observer", "RequestRecord", "StepRecord"]


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


class Observer(NamedTuple):
    """A hook to call, and its name."""

    name: str
    """The name in messages."""
    hook: Callable[..., object]
    """Called with ``step=`` or ``request=``, a record."""
