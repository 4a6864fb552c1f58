"""A step's token budget, and how it is split: the spans of a request that fit what is left of it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from turnout.core.interfaces.kv import KVCache, Span
from turnout.core.types.plan import Chunk
from turnout.core.types.request import Request, Sequence

__all__ = ["Capacity", "chunk_of", "scored_cost", "spans_within", "token_cost", "without_draft"]

SCORED_COST = 2
"""What a token of a prompt that is scored takes of the budget. Its logits, their softmax and the most likely
tokens of the whole vocabulary come to the forward, so a step of such tokens alone is much longer."""


@dataclass(frozen=True)
class Capacity:
    """What a step may use, besides KV memory."""

    tokens: int
    """Tokens that a step computes at most, over all requests."""
    sequences: int
    """Sequences that run at once, at most."""
    pooled: int | None = None
    """Of `tokens`, those of requests that generate nothing while others generate; None: all."""

    def most_pooled(self, tokens: int) -> int:
        """Returns how many of a step's `tokens` those may be, while others generate."""
        return tokens if self.pooled is None else min(self.pooled, tokens)


def scored_cost(running: Iterable[Request]) -> int:
    """Returns what a scored token takes of the budget of a step: more only where others would wait for it."""
    return SCORED_COST if any(not request.prompt_scores_due for request in running) else 1


def token_cost(request: Request, scored: int) -> int:
    """Returns what a token of a request takes of the budget, where one that is scored takes `scored`."""
    return scored if request.prompt_scores_due and len(request.live) == 1 else 1


def spans_within(request: Request, budget: int, kv: KVCache) -> list[Span]:
    """Returns the spans to compute for a request within `budget`; empty if the budget is too small.

    Several sequences of a request catch up one at a time, so that each finds in the cache what its siblings
    computed. Once all are decode-ready they step together or not at all, with as many drafts as fit.
    """
    if budget <= 0:
        return []
    if request.pooling is not None and request.pooling.whole:
        whole = Span(request.live[0], 0, len(request.prompt))
        return [whole] if whole.tokens <= budget else []
    if len(request.live) == 1:
        sequence = request.live[0]
        start = sequence.computed if sequence.held else _found(sequence, kv)
        end = len(sequence.tokens) + len(sequence.draft)
        return [Span(sequence, start, min(end, start + budget))]
    ready = []
    for sequence in request.live:
        start, last = sequence.computed, len(sequence.tokens) - 1
        if not sequence.held:
            start = _found(sequence, kv)
        if start < last:
            return [Span(sequence, start, min(last, start + budget))]
        ready.append(Span(sequence, start, sequence.end))
    return _together(ready, budget)


def without_draft(span: Span) -> Span:
    return span._replace(upto=min(span.upto, len(span.sequence.tokens)))


def chunk_of(span: Span) -> Chunk:
    """Builds the chunk of a span, with logits from the last token on; drops the drafts that did not fit."""
    sequence, start, end = span
    if (pooling := sequence.request.pooling) is not None:
        return Chunk(sequence, start, sequence.tokens[start:end], 0, pooled=pooling.wanted(start, end))
    length = len(sequence.tokens)
    rows = max(0, end - length + 1)
    sequence.draft = sequence.draft[: max(0, rows - 1)]
    tokens = sequence.tokens[start:end] + sequence.draft[max(0, start - length) :]
    unscored = sequence.request.unscored
    scored = range(max(start, unscored.start), min(end, unscored.stop)) if unscored else unscored
    return Chunk(sequence, start, tokens, rows, scored)


def _found(sequence: Sequence, kv: KVCache) -> int:
    """Counts the leading tokens that need no compute: cached ones, up to the first position to score."""
    found, unscored = kv.cached(sequence), sequence.request.unscored
    return min(found, unscored.start) if unscored else found


def _together(ready: list[Span], budget: int) -> list[Span]:
    """Returns the spans of sequences that step together, with the drafts that fit.

    Empty if the budget is less than a token for each sequence.
    """
    spare = budget - len(ready)
    if spare < 0:
        return []
    spans = []
    for sequence, start, end in ready:
        drafts = min(end - start - 1, spare)
        spare -= drafts
        spans.append(Span(sequence, start, start + 1 + drafts))
    return spans
