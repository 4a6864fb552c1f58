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
    started: float
    """Seconds on the engine's clock, and so `ended`."""
    ended: float
    tokens: int
    """Run through the model."""
    rows: int
    """Of those, with logits: what a strategy chose tokens by, or verified guesses."""
    sequences: int
    running: int
    waiting: int
    kv_free: int
    """Token positions, after the step."""


class RequestRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A request that has ended."""

    id: str
    client: str
    priority: int
    prompt_tokens: int
    cached_tokens: int
    output_tokens: int
    """Over all choices."""
    finish_reason: str
    """Of the choice that ended last: ``stop``, ``length``, ``abort`` or ``error``."""
    timing: Timing


class Observer(NamedTuple):
    name: str
    """As messages call it."""
    hook: Callable[..., object]
