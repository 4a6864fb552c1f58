"""How often an engine may be started again before the server gives up, and how soon."""

from __future__ import annotations

from collections import deque

from turnout.core.clock import Clock, monotonic

__all__ = ["WINDOW_SECONDS", "RestartLimit"]

WINDOW_SECONDS = 600.0
"""Restarts are counted over this time: an engine that dies now and then is not one that cannot live."""
PAUSE_WINDOW_SECONDS = 60.0
"""Deaths that follow each other within this time have ever longer pauses between them."""
FIRST_PAUSE_SECONDS = 0.25
LONGEST_PAUSE_SECONDS = 30.0


class RestartLimit:
    """Allows `most` restarts that count within `WINDOW_SECONDS`, and any number that do not; none if 0."""

    def __init__(self, most: int, clock: Clock = monotonic) -> None:
        self.count = 0
        """Restarts allowed so far."""
        self._most = most
        self._clock = clock
        self._counted: deque[float] = deque()
        self._all: deque[float] = deque()

    def allow(self, *, counts: bool = True) -> bool:
        """Whether the engine may be started again now; notes the restart if so."""
        now = self._clock()
        _forget(self._counted, now - WINDOW_SECONDS)
        if not self._most or (counts and len(self._counted) >= self._most):
            return False
        if counts:
            self._counted.append(now)
        self._all.append(now)
        self.count += 1
        return True

    def forgive(self, restarts: int) -> None:
        """Counts so many of the latest restarts no more: what caused them is gone."""
        for _ in range(min(restarts, len(self._counted))):
            self._counted.pop()

    @property
    def pause(self) -> float:
        """Seconds to wait before the restart that was allowed last: none for the first in a row."""
        _forget(self._all, self._clock() - PAUSE_WINDOW_SECONDS)
        doublings = len(self._all) - 2
        return 0.0 if doublings < 0 else min(FIRST_PAUSE_SECONDS * 2**doublings, LONGEST_PAUSE_SECONDS)

    @property
    def open(self) -> bool:
        """Whether restarts have not been forbidden."""
        return self._most > 0

    def forbid(self) -> None:
        """Allow no more restarts."""
        self._most = 0


def _forget(times: deque[float], before: float) -> None:
    while times and times[0] <= before:
        times.popleft()
