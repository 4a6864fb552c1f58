"""How often an engine may be started again before the server gives up."""

from __future__ import annotations

from collections import deque

from turnout.core.clock import Clock, monotonic

__all__ = ["WINDOW_SECONDS", "RestartLimit"]

WINDOW_SECONDS = 600.0
"""Restarts are counted over this time: an engine that dies now and then is not one that cannot live."""


class RestartLimit:
    """Allows `most` restarts within `WINDOW_SECONDS`."""

    def __init__(self, most: int, clock: Clock = monotonic) -> None:
        self.count = 0
        """Restarts allowed so far."""
        self._most = most
        self._clock = clock
        self._recent: deque[float] = deque()

    def allow(self) -> bool:
        """Whether the engine may be started again now; counts the restart if so."""
        now = self._clock()
        while self._recent and self._recent[0] <= now - WINDOW_SECONDS:
            self._recent.popleft()
        if len(self._recent) >= self._most:
            return False
        self._recent.append(now)
        self.count += 1
        return True

    def forbid(self) -> None:
        """Allow no more restarts."""
        self._most = 0
