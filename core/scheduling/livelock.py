"""Detects livelock: repeated evictions without progress."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from turnout.core.types.plan import Chunk
from turnout.core.types.request import Request

__all__ = ["MAX_EVICTIONS_PER_REQUEST", "LivelockDetector"]

MAX_EVICTIONS_PER_REQUEST = 2
"""Evictions without progress, for each running or waiting request, until the policy is overruled."""


class LivelockDetector:
    """Counts the evictions since the last step in which a request made progress.

    A request makes progress by computing a position that it never had computed before. While no request does,
    one that computes again what an eviction cost it also makes progress, as long as it gets further than ever
    since the last new position. A request that has precedence catches up at once; requests that evict each
    other come to the same position again and again.
    """

    def __init__(self) -> None:
        self.evictions = 0
        self._caught_up: dict[Request, int] = {}
        """The most positions that each request held, over all its sequences, since the last new position."""

    def note_eviction(self, request: Request) -> None:
        """Call before the memory of `request` is released."""
        most_computed = max(sequence.computed for sequence in request.live)
        request.most_computed = max(request.most_computed, most_computed)
        self.evictions += 1

    def note_step(self, scheduled: Mapping[Request, list[Chunk]]) -> None:
        """Call with the chunks that a step computes."""
        if not self.evictions and not self._caught_up:
            return
        if any(_breaks_ground(request, chunks) for request, chunks in scheduled.items()):
            self.evictions = 0
            self._caught_up.clear()
        elif self._catch_up(scheduled):
            self.evictions = 0

    def forget(self, request: Request) -> None:
        self._caught_up.pop(request, None)

    def _catch_up(self, scheduled: Mapping[Request, list[Chunk]]) -> bool:
        """Whether any request holds more positions after this step than before."""
        more = {request: _held(request, chunks) for request, chunks in scheduled.items()}
        more = {r: held for r, held in more.items() if held > self._caught_up.get(r, 0)}
        self._caught_up |= more
        return bool(more)


def _breaks_ground(request: Request, chunks: Iterable[Chunk]) -> bool:
    return any(chunk.end > request.most_computed for chunk in chunks)


def _held(request: Request, chunks: Iterable[Chunk]) -> int:
    """Positions that the request holds once `chunks` are computed."""
    return sum(sequence.computed for sequence in request.live) + sum(len(chunk.tokens) for chunk in chunks)
