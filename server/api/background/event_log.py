"""The events of a response in the background, for clients that come back to read on."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import AsyncGenerator

from turnout.core import limits

__all__ = ["EventLog", "EventLogs"]

BORDER = b"\n\n"
"""Ends an event, and is in none: JSON has no line breaks of its own."""
READ = 64
"""Events that are sent at once."""
EVENT = 100
"""Bytes that an event takes beside its text."""


class EventLog:
    """Events by their sequence numbers, which count from 0."""

    def __init__(self) -> None:
        self.size = 0
        """Bytes."""
        self._events: list[bytes] = []
        self._ended = False
        self._changed = asyncio.Event()

    def add(self, events: bytes) -> None:
        """Adds events, one after the other as they are sent."""
        added = events.split(BORDER)[:-1]
        self._events += added
        self.size += len(events) + EVENT * len(added)
        self._wake()

    def end(self) -> None:
        """There will be no more."""
        self._ended = True
        self._wake()

    async def read(self, first: int) -> AsyncGenerator[bytes, None]:
        """Yields the events from this one on, as they come; returns after the last."""
        while True:
            changed = self._changed
            while some := self._events[first : first + READ]:
                first += len(some)
                yield b"".join(event + BORDER for event in some)
            if self._ended:
                return
            if changed is self._changed:
                await changed.wait()

    def _wake(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()


class EventLogs:
    """The logs of responses that are being generated, and of those that ended last."""

    def __init__(self) -> None:
        self._logs: dict[str, EventLog] = {}
        self._ended: OrderedDict[str, EventLog] = OrderedDict()

    def begin(self, id: str) -> EventLog:
        """The log of a response that begins."""
        log = self._logs[id] = EventLog()
        return log

    def find(self, id: str) -> EventLog | None:
        """None: the response had no log, or has ended long ago."""
        return self._logs.get(id) or self._ended.get(id)

    def end(self, id: str) -> None:
        """Ends a log, if the response has one, and keeps it as long as there is room."""
        if (log := self._logs.pop(id, None)) is not None:
            log.end()
            self._ended[id] = log
            while sum(each.size for each in self._ended.values()) > limits.EVENTS_KEPT.whole:
                self._ended.popitem(last=False)

    def forget(self, id: str) -> None:
        """Drops the log of a response that has ended."""
        self._ended.pop(id, None)
