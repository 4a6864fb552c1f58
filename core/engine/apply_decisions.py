"""Applying decisions: who continues whom, and where a sequence ends.

Nothing here knows whether a decision was sampling, speculation or beam search.

Where steps overlap, that a token was chosen is known before the token is: ``promise`` continues a sequence
with one that is not known yet, ``keep`` says which it was.
"""

from __future__ import annotations

from turnout.core.interfaces.kv import KVCache
from turnout.core.types.decision import Completion, Continuation, TokenLogprobs
from turnout.core.types.messages import Delta
from turnout.core.types.request import Request, Sequence

__all__ = ["Promised", "advance", "complete", "keep", "promise"]

Promised = list[tuple[int, Sequence]]
"""Rows of what was chosen on the device, and whose tokens they are."""


def advance(request: Request, chosen: list[Continuation], kv: KVCache) -> tuple[list[Delta], list[Sequence]]:
    """Continue, fork and drop the sequences of a request.

    Returns what a client may see of that, and the sequences that ended, whose memory is the caller's to free.
    """
    deltas, ended = [], []
    children = _descend(request, [continuation.parent for continuation in chosen], kv)
    for child, continuation in zip(children, chosen, strict=True):
        before = len(child.tokens)
        delta = _extend(child, continuation)
        request.output_tokens += len(child.tokens) - before
        kv.commit(child, child.computed)
        if delta.finish_reason:
            ended.append(child)
        if delta.finish_reason or delta.tokens:
            deltas.append(delta)
    return deltas, ended


def promise(request: Request, chosen: Promised, first: int, kv: KVCache) -> Promised:
    """As `advance`, by a token each that is a place among those chosen on the device.

    chosen: a parent for each row, rows being numbered from `first` on. Returns the child for each.
    """
    if len(chosen) > 1 or len(request.live) > 1:  # else the one goes on in its place
        children = _descend(request, [parent for _, parent in chosen], kv)
        chosen = [(row, child) for (row, _), child in zip(chosen, children, strict=True)]
    for row, child in chosen:
        child.tokens.append(-1 - first - row)
        kv.commit(child, child.computed)
    request.output_tokens += len(chosen)
    return chosen


def keep(sequence: Sequence, token: int, detail: TokenLogprobs | None) -> Delta:
    """The token that a sequence was promised, whatever has become of its memory since."""
    sequence.tokens[-1] = token
    if detail is not None:
        sequence.details.append(detail)
    return _told(sequence, *_cut([token], sequence.request.stop_ids, sequence.room + 1))


def complete(request: Request, completion: Completion) -> list[Delta]:
    """The choices of a request that its strategy ends. The memory of what lives is the caller's to free."""
    # Each live sequence got its next token, whichever of them a choice ends with.
    request.output_tokens += len(request.live)
    return [
        Delta(
            request_id=request.id,
            index=index,
            tokens=choice.tokens,
            logprobs=None if request.params.logprobs is None else choice.details,
            finish_reason=choice.finish_reason,
            stop_token=choice.stop_token,
            cached_tokens=request.cached_tokens,
            cumulative_logprob=choice.logprob,
            score=choice.score,
        )
        for index, choice in enumerate(completion.choices)
    ]


def _descend(request: Request, parents: list[Sequence], kv: KVCache) -> list[Sequence]:
    """A child for each of `parents`: the first of a parent stays in place, further ones fork; parents not
    named go."""
    before = request.live
    if parents == list(before):
        return parents
    children, seen = [], set[Sequence]()
    for parent in parents:
        children.append(_fork(parent, kv) if parent in seen else parent)
        seen.add(parent)
    kv.release([sequence for sequence in before if sequence not in seen])
    request.live = tuple(children)
    return children


def _fork(parent: Sequence, kv: KVCache) -> Sequence:
    child = parent.fork()
    kv.fork(parent, child)
    return child


def _extend(sequence: Sequence, continuation: Continuation) -> Delta:
    """Append what was decided, cut at the first stop, and say so."""
    tokens, reason = _cut(continuation.tokens, sequence.request.stop_ids, sequence.room)
    # Only what was guessed has its KV already; and something must be left to compute, for the next logits.
    sequence.computed = len(sequence.tokens) + min(_agreed(sequence.draft, tokens), len(tokens) - 1)
    sequence.tokens += tokens
    sequence.draft = []
    sequence.logprob += continuation.logprob
    sequence.score = continuation.score
    if continuation.details is not None:
        sequence.details += continuation.details[: len(tokens)]
    return _told(sequence, tokens, reason)


def _told(sequence: Sequence, tokens: list[int], reason: str | None) -> Delta:
    """What a client may know of `tokens`, which a sequence was continued with."""
    request = sequence.request
    shown = tokens if request.decoding.streams else sequence.output if reason else []
    scored = request.spec.params.logprobs is not None
    return Delta(
        request_id=request.spec.id,
        index=sequence.index,
        tokens=shown,
        logprobs=sequence.details[len(sequence.details) - len(shown) :] if scored else None,
        finish_reason=reason,
        stop_token=tokens[-1] if reason == "stop" else None,
        cached_tokens=request.cached_tokens,
    )


def _agreed(draft: list[int], tokens: list[int]) -> int:
    """How many guesses came true: up to the first that did not."""
    if not draft:
        return 0
    pairs = enumerate(zip(draft, tokens, strict=False))
    return next((count for count, (guess, token) in pairs if guess != token), min(len(draft), len(tokens)))


def _cut(tokens: list[int], stops: frozenset[int], room: int) -> tuple[list[int], str | None]:
    """The tokens up to the first stop or the limit, and which of the two ended them."""
    if len(tokens) < room and stops.isdisjoint(tokens):  # nearly always
        return tokens, None
    for count, token in enumerate(tokens[:room], 1):
        if token in stops:
            return tokens[:count], "stop"
    return tokens[:room], "length" if len(tokens) >= room else None
