"""Measures how fast waiting requests begin, for admission policies."""

from __future__ import annotations

__all__ = ["AdmissionRate"]

HALF_LIFE_SECONDS = 10.0
"""Of waiting, after which a measurement counts half."""
LEAST_SECONDS = 1.0
"""Of waiting, until there is a rate at all."""


class AdmissionRate:
    """Counts the requests that begin while others wait, and the seconds in which some wait."""

    def __init__(self) -> None:
        self._begun = self._seconds = 0.0
        self._last: float | None = None
        """When the latest step was planned, if some requests waited after it."""

    def note(self, now: float, begun: int, waiting: int) -> None:
        """Notes a step, planned `now`: how many requests began in it, and how many wait after it."""
        if self._last is not None:
            elapsed = max(0.0, now - self._last)
            fade = 0.5 ** (elapsed / HALF_LIFE_SECONDS)
            self._begun = self._begun * fade + begun
            self._seconds = self._seconds * fade + elapsed
        self._last = now if waiting else None

    @property
    def per_second(self) -> float | None:
        """None: requests have not waited for long enough.

        The next one to begin is counted too: a queue that has stood still for 5 s has a rate of 0.2 at most.
        """
        return (self._begun + 1) / self._seconds if self._seconds >= LEAST_SECONDS else None
