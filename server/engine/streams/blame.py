"""Which of an engine's requests may have ended it.

A request that kills engines is found in three deaths: one among others, one while it is tried, one alone.
Those that the engine had begun with are suspects, first of all those without a token yet: most that kill do
so at once. Each is then tried for a few tokens before the next, so that the next death names one. That one is
tried alone, and is ended if it was the only suspect of two deaths.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import NamedTuple

from turnout.server.engine.streams.request_stream import RequestStream

__all__ = ["Blame", "blame"]


class Blame(NamedTuple):
    """The suspects of a death."""

    suspects: Sequence[RequestStream]
    """The likeliest first."""
    certain: bool
    """Nothing else that the engine served can have caused it."""
    apart: bool
    """The first suspect is so likely that no other request is to share an engine with it."""


def blame(served: Sequence[RequestStream], begun: Collection[str] | None, lost: float = 0.0) -> Blame:
    """The requests that may have caused a death that looks like a fault.

    `served`: what the engine was given and had not ended, in order of arrival. `begun`: the ids of those that
    it had begun with, in this order; None: it could not say. `lost`: seconds in which what was in an engine
    that died may just have made its last tokens again.
    """
    begun = [stream.spec.id for stream in served] if begun is None else begun
    by_id = {stream.spec.id: stream for stream in served}
    newest = [by_id[id] for id in reversed(list(begun)) if id in by_id]
    if len(newest) == 1:
        return Blame(newest, certain=True, apart=True)
    fresh = [stream for stream in newest if not (stream.survived(lost) if stream.deaths else stream.proven)]
    again = [stream for stream in fresh if stream.deaths]
    if len(again) == 1:  # what else was in the engine was in no other that died, or has had tokens here
        return Blame(again, certain=True, apart=True)
    proven = [stream for stream in newest if stream not in fresh]
    return Blame([*again, *(s for s in fresh if not s.deaths), *proven], certain=False, apart=len(fresh) == 1)
