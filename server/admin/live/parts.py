"""Events of a bounded size: what is too much for one is told in several."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from turnout.core.types.live.event import LiveEngine, LiveEvent

__all__ = ["MAX_BYTES", "decoded", "encoded"]

HEAD, END = b"event: live\ndata: ", b"\n\n"

MAX_BYTES = 190_000
"""Of an event, about."""
REQUESTS, PROGRESS, SPANS, STEPS = 300, 1000, 600, 100
"""What a part tells at most."""


def encoded(event: LiveEvent) -> list[bytes]:
    """The event as server-sent events: one, or if it is large, one after the other."""
    data = _sent(event)
    if len(data) <= MAX_BYTES:
        return [data]
    pieces = [piece for engine in event.engines for piece in _pieces(engine)]
    head = LiveEvent(at=event.at, first=event.first, arms=event.arms)
    return [_sent(head), *(_sent(LiveEvent(at=event.at, engines=[piece])) for piece in pieces)]


def _sent(event: LiveEvent) -> bytes:
    return HEAD + msgspec.json.encode(event) + END


def decoded(sent: bytes) -> LiveEvent:
    """The event that was sent."""
    return msgspec.json.decode(sent.removeprefix(HEAD), type=LiveEvent)


def _pieces(engine: LiveEngine) -> Iterator[LiveEngine]:
    requests, progress, spans, steps = engine.requests, engine.progress, engine.spans, engine.steps
    place = 0
    while place == 0 or any(
        place * most < len(all_of)
        for all_of, most in ((requests, REQUESTS), (progress, PROGRESS), (spans, SPANS), (steps, STEPS))
    ):
        piece = msgspec.structs.replace(
            engine,
            began=engine.began and not place,
            kv=None if place else engine.kv,
            policies={} if place else engine.policies,
            requests=requests[place * REQUESTS :][:REQUESTS],
            progress=progress[place * PROGRESS :][:PROGRESS],
            spans=spans[place * SPANS :][:SPANS],
            breadths=[] if place else engine.breadths,
            steps=steps[place * STEPS :][:STEPS],
        )
        place += 1
        yield piece
