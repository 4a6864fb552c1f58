"""What a request may compute in a step: what is left of its tokens, as far as a budget goes."""

from __future__ import annotations

from turnout.core.interfaces.kv import KVCache, Span
from turnout.core.types.plan import Chunk
from turnout.core.types.request import Request, Sequence

__all__ = ["affordable", "chunk_of", "without_draft"]


def affordable(request: Request, budget: int, kv: KVCache) -> list[Span]:
    """What to compute for a request within `budget`; empty when that is too little for it.

    Several sequences catch up one at a time, so that each finds what its siblings computed; once
    level they step together or not at all, with as many of their drafts as the budget allows.
    """
    if budget <= 0:
        return []
    if len(request.live) == 1:
        sequence = request.live[0]
        start = sequence.computed if sequence.held else _found(sequence, kv)
        end = len(sequence.tokens) + len(sequence.draft)
        return [Span(sequence, start, min(end, start + budget))]
    level = []
    for sequence in request.live:
        start, last = sequence.computed, len(sequence.tokens) - 1
        if not sequence.held:
            start = _found(sequence, kv)
        if start < last:
            return [Span(sequence, start, min(last, start + budget))]
        level.append(Span(sequence, start, sequence.end))
    return _together(level, budget)


def without_draft(span: Span) -> Span:
    return span._replace(upto=min(span.upto, len(span.sequence.tokens)))


def chunk_of(span: Span) -> Chunk:
    """The slice, with logits for its positions from the last token on; drafts that did not fit go."""
    sequence, start, end = span
    length = len(sequence.tokens)
    rows = max(0, end - length + 1)
    sequence.draft = sequence.draft[: max(0, rows - 1)]
    tokens = sequence.tokens[start:end] + sequence.draft[max(0, start - length) :]
    unscored = sequence.request.unscored
    scored = range(max(start, unscored.start), min(end, unscored.stop)) if unscored else unscored
    return Chunk(sequence, start, tokens, rows, scored)


def _found(sequence: Sequence, kv: KVCache) -> int:
    """Leading tokens of a newcomer that need no compute; what it wants scored does, cached or not."""
    found, unscored = kv.cached(sequence), sequence.request.unscored
    return min(found, unscored.start) if unscored else found


def _together(level: list[Span], budget: int) -> list[Span]:
    """The spans of sequences that step together, without the drafts that are beyond `budget`; empty when
    there is not even a token for each."""
    spare = budget - len(level)
    if spare < 0:
        return []
    spans = []
    for sequence, start, end in level:
        drafts = min(end - start - 1, spare)
        spare -= drafts
        spans.append(Span(sequence, start, start + 1 + drafts))
    return spans
