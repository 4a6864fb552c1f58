"""Time is passed in: nothing inside scheduling, KV or decoding reads a clock of its own."""

from __future__ import annotations

import time
from collections.abc import Callable

__all__ = ["Clock", "monotonic"]

Clock = Callable[[], float]
"""Seconds, from an arbitrary start, never going back."""

monotonic: Clock = time.monotonic
