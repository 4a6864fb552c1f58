"""Asks the engine for the state of its KV pool, for metrics."""

from __future__ import annotations

import asyncio
import math

from turnout.core.clock import Clock, monotonic
from turnout.core.engine.client import EngineClient
from turnout.core.errors import TurnoutError
from turnout.core.types.messages import KVSnapshot, ShowKV
from turnout.server.engine.admin_client import fetch

__all__ = ["KVStats"]

MIN_INTERVAL_SECONDS = 1.0
"""The least time between two requests to the engine: ``/metrics`` needs no key, so any client may scrape."""
MAX_WAIT_SECONDS = 2.0
"""How long a scrape waits for the engine's step to end."""


class KVStats:
    """Fetches snapshots of the KV pool when they are wanted, and shares them between callers.

    The engine does not report them regularly: a snapshot looks at every block, and is rarely wanted.
    """

    def __init__(self, client: EngineClient, clock: Clock = monotonic) -> None:
        self._client = client
        self._clock = clock
        self._asked = -math.inf
        self._answer: asyncio.Task[KVSnapshot | None] | None = None

    async def latest(self) -> KVSnapshot | None:
        """A recent snapshot; None if the engine is gone or does not answer in time."""
        if self._answer is None or (
            self._answer.done() and self._clock() >= self._asked + MIN_INTERVAL_SECONDS
        ):
            self._asked = self._clock()
            self._answer = asyncio.create_task(self._ask())
        done, _ = await asyncio.wait({self._answer}, timeout=MAX_WAIT_SECONDS)
        return self._answer.result() if done else None

    async def _ask(self) -> KVSnapshot | None:
        try:
            return await fetch(self._client, ShowKV(), KVSnapshot)
        except TurnoutError:  # `Stats` and health say what is wrong with it
            return None
