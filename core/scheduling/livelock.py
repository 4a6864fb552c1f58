"""Whether anybody gets on, though requests are evicted. Else those who evict each other do so for ever."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from turnout.core.types.plan import Chunk
from turnout.core.types.request import Request

__all__ = ["MAX_EVICTIONS_PER_REQUEST", "LivelockDetector"]

MAX_EVICTIONS_PER_REQUEST = 2
"""Evictions for each request there is, while nobody gets on, until a policy is no longer asked."""


class LivelockDetector:
    """Counts evictions in a row, from the last step on in which somebody got on.

    To get on is to compute a position that the request never had computed before; or, while nobody does,
    to get further in catching up with what evictions have cost. Who has precedence catches up in one go;
    those who evict each other come to the same point again and again.
    """

    def __init__(self) -> None:
        self.evictions = 0
        self._caught_up: dict[Request, int] = {}
        """Positions, over all sequences, that each held at most since somebody got further than ever."""

    def note_eviction(self, request: Request) -> None:
        """`request` is about to give its memory up."""
        most_computed = max(sequence.computed for sequence in request.live)
        request.most_computed = max(request.most_computed, most_computed)
        self.evictions += 1

    def note_step(self, scheduled: Mapping[Request, list[Chunk]]) -> None:
        """A step computes this."""
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
        """Does anybody hold more after this than so far?"""
        more = {request: _held(request, chunks) for request, chunks in scheduled.items()}
        more = {r: held for r, held in more.items() if held > self._caught_up.get(r, 0)}
        self._caught_up |= more
        return bool(more)


def _breaks_ground(request: Request, chunks: Iterable[Chunk]) -> bool:
    return any(chunk.end > request.most_computed for chunk in chunks)


def _held(request: Request, chunks: Iterable[Chunk]) -> int:
    """Positions, once `chunks` are computed."""
    return sum(sequence.computed for sequence in request.live) + sum(len(chunk.tokens) for chunk in chunks)
