"""What observers are told: a record of each step, and of each request that ended."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import msgspec

from turnout.core.types.request import Timing

__all__ = ["Observer", "RequestRecord", "StepRecord"]


class StepRecord(msgspec.Struct, frozen=True, kw_only=True):
    """One step of the engine."""

    number: int
    """The step's own, counted from the start."""
    started: float
    """When the step began, in seconds on the engine's clock."""
    ended: float
    """When the step ended."""
    tokens: int
    """Run through the model."""
    rows: int
    """Of those, with logits: what a strategy chose tokens by, or verified guesses."""
    sequences: int
    """How many of them computed something."""
    running: int
    """How many requests, after the step."""
    waiting: int
    """How many requests, after the step."""
    kv_free: int
    """Token positions, after the step."""


class RequestRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A request that has ended."""

    id: str
    """As ``RequestView.id``."""
    client: str
    """As ``RequestView.client``."""
    priority: int
    """As the client gave it."""
    prompt_tokens: int
    """Length of the prompt."""
    cached_tokens: int
    """How many of those were found in KV memory when it was admitted."""
    output_tokens: int
    """Over all choices."""
    finish_reason: str
    """Of the choice that ended last: ``stop``, ``length``, ``abort`` or ``error``."""
    timing: Timing
    """When things happened to the request."""


class Observer(NamedTuple):
    name: str
    """As messages call it."""
    hook: Callable[..., object]
