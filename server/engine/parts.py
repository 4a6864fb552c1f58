"""The messages of an engine's events: split into what is decoded within a few milliseconds, and read."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec

from turnout.core.types.logprobs import TokenLogprobs
from turnout.core.types.messages import Delta, Event, Failed, PromptScores, Reply
from turnout.core.types.messages.reading import UNREADABLE, MessageReader

__all__ = ["event_reader", "in_parts"]

PART = 8192
"""Log-probabilities of a message. Decoding them takes 2 ms."""


def in_parts(events: list[Event]) -> Iterator[list[Event]]:
    """Yields messages: a prompt's log-probabilities in parts, and after them the events."""
    for number, event in enumerate(events):
        if isinstance(event, Delta) and event.prompt_logprobs:
            size = _positions(event.prompt_logprobs)
            *parts, last = _split(event.prompt_logprobs, size)
            for part in parts:
                yield [PromptScores(event.request_id, part)]
            if parts:
                events[number] = msgspec.structs.replace(event, prompt_logprobs=last)
    yield events


def _positions(scores: Sequence[TokenLogprobs]) -> int:
    """Positions of a part."""
    return max(1, PART // (1 + len(scores[0].top)))


def _split(scores: Sequence[TokenLogprobs], size: int) -> Iterator[list[TokenLogprobs]]:
    for start in range(0, len(scores), size):
        yield list(scores[start : start + size])


class _Named(msgspec.Struct):
    """What tells whom an event is for."""

    type: str
    request_id: str = ""
    id: str = ""


def event_reader() -> MessageReader[Event]:
    """Reads events. One that cannot be read is an error of the request or command that it is for."""
    return MessageReader(Event, _instead)


def _instead(event: bytes, reason: str) -> Event | None:
    try:
        named = msgspec.msgpack.decode(event, type=_Named)
    except UNREADABLE:
        return None
    message = f"a plugin gave what the server cannot read: {reason}"
    if named.request_id:
        return Delta(request_id=named.request_id, finish_reason="error", error=message, error_kind="internal")
    if named.id:
        return Reply(id=named.id, error=message, error_kind="internal")
    return Failed(message, final=True) if named.type == "Ready" else None
