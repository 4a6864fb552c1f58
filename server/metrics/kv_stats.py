"""Asking the engine how its KV pool stands, for whoever watches."""

from __future__ import annotations

import asyncio
import math

from turnout.core.clock import Clock, monotonic
from turnout.core.engine.client import EngineClient
from turnout.core.errors import TurnoutError
from turnout.core.types.messages import KVSnapshot, ShowKV
from turnout.server.engine.ask import ask

__all__ = ["KVWatch"]

INTERVAL = 1.0
"""Seconds between two questions to the engine, at least: whoever scrapes needs no key."""
MAX_WAIT_SECONDS = 2.0
"""Seconds that a scrape waits for the engine's step to end."""


class KVWatch:
    """Asks the engine how its KV pool stands, when somebody wants to know.

    Not part of the engine's regular reports: a snapshot looks at every block, and mostly nobody is looking.
    """

    def __init__(self, client: EngineClient, clock: Clock = monotonic) -> None:
        self._client = client
        self._clock = clock
        self._asked = -math.inf
        self._answer: asyncio.Task[KVSnapshot | None] | None = None

    async def latest(self) -> KVSnapshot | None:
        """At most `INTERVAL` old; None when the engine is gone or does not answer in time."""
        if self._answer is None or (self._answer.done() and self._clock() >= self._asked + INTERVAL):
            self._asked = self._clock()
            self._answer = asyncio.create_task(self._ask())
        done, _ = await asyncio.wait({self._answer}, timeout=MAX_WAIT_SECONDS)
        return self._answer.result() if done else None

    async def _ask(self) -> KVSnapshot | None:
        try:
            return await ask(self._client, ShowKV(), KVSnapshot)
        except TurnoutError:  # `Stats` and health say what is wrong with it
            return None
