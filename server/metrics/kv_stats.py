"""Asks engines for the state of their KV pools, for metrics."""

from __future__ import annotations

import asyncio
from typing import NamedTuple
from weakref import WeakKeyDictionary

from turnout.core.clock import Clock, monotonic
from turnout.core.errors import TurnoutError
from turnout.core.types.messages import KVSnapshot, ShowKV
from turnout.server.http.admin_client import CommandTaker, fetch

__all__ = ["KVStats"]

MIN_INTERVAL_SECONDS = 1.0
"""The least time between two requests to the engine: ``/metrics`` needs no key, so any client may scrape."""
MAX_WAIT_SECONDS = 2.0
"""How long a scrape waits for the engine's step to end."""


class KVStats:
    """Fetches snapshots of KV pools when they are wanted, and shares them between callers.

    The engines do not report them regularly: a snapshot looks at every block, and is rarely wanted.
    """

    def __init__(self, clock: Clock = monotonic) -> None:
        self._clock = clock
        self._asked: WeakKeyDictionary[CommandTaker, _Question] = WeakKeyDictionary()
        """The latest question to each engine."""

    async def latest(self, client: CommandTaker) -> KVSnapshot | None:
        """A recent snapshot; None if the engine is gone or does not answer in time."""
        question = self._asked.get(client)
        if question is None or (
            question.answer.done() and self._clock() >= question.asked + MIN_INTERVAL_SECONDS
        ):
            question = _Question(self._clock(), asyncio.create_task(_ask(client)))
            self._asked[client] = question
        done, _ = await asyncio.wait({question.answer}, timeout=MAX_WAIT_SECONDS)
        return question.answer.result() if done else None


class _Question(NamedTuple):
    asked: float
    answer: asyncio.Task[KVSnapshot | None]


async def _ask(client: CommandTaker) -> KVSnapshot | None:
    try:
        return await fetch(client, ShowKV(), KVSnapshot)
    except TurnoutError:  # `Stats` and health say what is wrong with it
        return None
