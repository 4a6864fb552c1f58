"""Decides when a batch's next line begins, so that clients who wait do not feel it."""

from __future__ import annotations

from turnout.core.clock import Clock, monotonic
from turnout.server.http.load import ServerLoad

__all__ = ["Feeder"]

QUIET_SECONDS = 2.0
"""After the last client's request, only one line is in flight for so long: another is likely."""


class Feeder:
    """Lines fill what clients leave.

    While no client has asked anything for a while, up to `most` lines are in flight. Else only one is, and it
    begins when no client waits for the first token: beside decoding clients, its decoding costs them little,
    and the step in which it begins delays no first token.
    """

    def __init__(self, load: ServerLoad, most: int, clock: Clock = monotonic) -> None:
        self._load, self._most, self._clock = load, most, clock

    def has_room(self, in_flight: int) -> bool:
        """Whether another line may begin beside `in_flight` others."""
        load = self._load
        if load.requests or self._clock() - load.ended < QUIET_SECONDS:
            return in_flight == 0 and not load.waiting
        return in_flight < self._most
