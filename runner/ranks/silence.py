"""How long a process has been silent, and a thread that keeps it from being so."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import NamedTuple

__all__ = ["TIMING", "Silence", "Timing", "beat_forever"]


class Timing(NamedTuple):
    """Seconds of ranks' processes."""

    beat: float = 1.0
    """Between two signs of life."""
    silent: float = 10.0
    """A rank that has been silent for so long is lost."""
    starting: float = 600.0
    """A rank may be silent for so long before its first sign, while it loads libraries."""
    exiting: float = 5.0
    """A rank may take so long to end once it is told to."""


TIMING = Timing()


class Silence:
    """Counts the seconds since a rank's last sign of life.

    Only time in which this process ran counts: one that was stopped itself, with its terminal or its machine,
    has heard nothing meanwhile.
    """

    def __init__(self, timing: Timing, clock: Callable[[], float] = time.monotonic) -> None:
        self._timing, self._clock = timing, clock
        self._before = clock()
        self._limit = timing.starting
        self.seconds = 0.0

    def heard(self) -> None:
        """Called at each sign."""
        self.seconds, self._limit = 0.0, self._timing.silent

    def too_long(self) -> bool:
        """To be called once a beat or more often, after all signs that have come were heard."""
        now = self._clock()
        self.seconds += min(now - self._before, 2 * self._timing.beat)
        self._before = now
        return self.seconds >= self._limit


def beat_forever(beat: Callable[[], None], seconds: float) -> None:
    """Calls `beat` in a thread that waits for no step, until it raises OSError."""

    def work() -> None:
        try:
            while True:
                beat()
                time.sleep(seconds)
        except OSError:
            return  # rank 0 is gone, and this process about to end

    threading.Thread(target=work, name="heartbeat", daemon=True).start()
