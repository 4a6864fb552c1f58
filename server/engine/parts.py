"""Splits what the engine sends into messages that the server decodes within a few milliseconds."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec

from turnout.core.types.logprobs import TokenLogprobs
from turnout.core.types.messages import Delta, Event, PromptScores

__all__ = ["in_parts"]

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
