"""What a server learns of its engines: of blocks when their step has ended, of load now and then."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from heapq import heappop, heappush
from itertools import count
from typing import NamedTuple

from turnout.core.interfaces.kv import PrefixAnnouncer
from turnout.core.types.block_events import BlockEvent
from turnout.core.types.messages import STATS_SECONDS
from turnout.lab.simulation.assembly import SimulatedEngine

__all__ = ["News", "Told"]


class Told(NamedTuple):
    """A message of an engine."""

    at: float
    order: int
    """Of those that are sent at one time."""
    replica: int
    blocks: Sequence[BlockEvent]
    load: tuple[int, float] | None
    """Requests that wait, and the share of KV memory that is used; None: the message tells nothing of it."""


class News:
    """The messages of all engines that the server has not had yet.

    A simulated step is taken when it begins, and what it did is known here at once. An engine tells when the
    step has ended, and its load at most once in `STATS_SECONDS`.
    """

    def __init__(self, engines: Sequence[SimulatedEngine], announcers: Sequence[PrefixAnnouncer]) -> None:
        """announcers: of each engine, or none where nobody asks which prefixes they keep."""
        self._engines, self._announcers = engines, announcers
        self._reported = [-math.inf] * len(engines)
        self._messages: list[Told] = []
        self._order = count()

    def step(self, replica: int, end: float, *, last: bool) -> None:
        """Takes what an engine will tell when a step ends; `last`: it has nothing to do then."""
        blocks = self._announcers[replica].announced() if self._announcers else ()
        due = max(end, self._reported[replica] + STATS_SECONDS)
        if due == end or last:
            self._reported[replica] = due
            scheduler = self._engines[replica].scheduler
            load = scheduler.queues.waiting_count, 1 - scheduler.kv.free / scheduler.kv.capacity
            self._send(due, replica, (), load)
        if blocks:
            self._send(end, replica, blocks, None)

    def until(self, now: float) -> Iterator[Told]:
        """Those that have come by now."""
        messages = self._messages
        while messages and messages[0].at <= now:
            yield heappop(messages)

    def drain(self) -> list[Told]:
        """Returns those that have not been taken yet, in no order."""
        messages, self._messages = self._messages, []
        return messages

    def _send(
        self, at: float, replica: int, blocks: Sequence[BlockEvent], load: tuple[int, float] | None
    ) -> None:
        heappush(self._messages, Told(at, next(self._order), replica, blocks, load))
