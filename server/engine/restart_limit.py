"""How often an engine may be started again before the server gives up."""

from __future__ import annotations

from collections import deque

from turnout.core.clock import Clock, monotonic

__all__ = ["WINDOW", "Restarts"]

WINDOW = 600.0
"""Seconds in which restarts are counted: an engine that dies now and then is not one that cannot live."""


class Restarts:
    """Allows `most` of them within `WINDOW` seconds."""

    def __init__(self, most: int, clock: Clock = monotonic) -> None:
        self.count = 0
        """Allowed so far."""
        self._most = most
        self._clock = clock
        self._recent: deque[float] = deque()

    def allow(self) -> bool:
        now = self._clock()
        while self._recent and self._recent[0] <= now - WINDOW:
            self._recent.popleft()
        if len(self._recent) >= self._most:
            return False
        self._recent.append(now)
        self.count += 1
        return True

    def forbid(self) -> None:
        """No more of them."""
        self._most = 0
