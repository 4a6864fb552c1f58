"""How long an engine is watched: as long as watchers say so again and again."""

from __future__ import annotations

import math
import time
from typing import Protocol

from turnout.core.clock import Clock, monotonic
from turnout.core.engine.recording.recorder import Recorder
from turnout.core.types.live.news import EngineNews
from turnout.core.types.messages import Stats

__all__ = ["Lease"]


class Watchable(Protocol):
    """The part of an `Engine` that a lease uses."""

    def watch(self, epoch: float | None) -> Recorder | None: ...


class Lease:
    """Keeps an engine's record while it is renewed, so that a server that is gone costs nothing for long."""

    def __init__(self, engine: Watchable, clock: Clock = monotonic, wall: Clock = time.time) -> None:
        """clock: the engine's. wall: gives seconds since the epoch."""
        self._engine, self._clock, self._wall = engine, clock, wall
        self._recorder: Recorder | None = None
        self._until = -math.inf

    def renew(self, seconds: float, *, anew: bool = False) -> None:
        """Records for so long from now on; 0: no longer. anew: with everything told again."""
        if seconds <= 0:
            self.end()
            return
        now = self._clock()
        self._until = now + seconds
        if self._recorder is None or anew:
            self._recorder = self._engine.watch(self._wall() - now)

    def end(self) -> None:
        if self._recorder is not None:
            self._recorder = self._engine.watch(None)

    def news(self, stats: Stats, scheduler: str) -> list[EngineNews]:
        """Returns what happened since the last call, if the engine is watched."""
        if self._recorder is not None and self._clock() > self._until:
            self.end()
        return [] if self._recorder is None else [self._recorder.news(stats, scheduler)]
