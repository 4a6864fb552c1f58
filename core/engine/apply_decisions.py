"""Applies decisions: continues, forks and drops sequences, and ends them at a stop or at their limit.

Nothing here knows whether a decision came from sampling, speculation or beam search.

Where steps overlap, the engine knows that a token was chosen before it knows which: ``append_placeholders``
continues sequences with placeholders, and ``resolve_placeholder`` replaces one by the token.
"""

from __future__ import annotations

from turnout.core.interfaces.kv import KVCache
from turnout.core.types.decision import Completion, Continuation
from turnout.core.types.logprobs import TokenLogprobs
from turnout.core.types.messages import Delta
from turnout.core.types.request import Request, Sequence

__all__ = [
    "RowOwners",
    "append_placeholders",
    "apply_completion",
    "apply_continuations",
    "compute_again",
    "resolve_placeholder",
]

RowOwners = list[tuple[int, Sequence]]
"""Rows of the tokens chosen on the device, each with the sequence that its token belongs to."""


def apply_continuations(
    request: Request, chosen: list[Continuation], kv: KVCache
) -> tuple[list[Delta], list[Sequence]]:
    """Continues, forks and drops the sequences of a request.

    Returns the deltas for its client, and the sequences that ended. The caller frees the memory of those.
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


def append_placeholders(request: Request, chosen: RowOwners, first: int, kv: KVCache) -> RowOwners:
    """Continues a request as `apply_continuations` does, each sequence by a placeholder for one token.

    A placeholder is a negative number: -1 stands for the first token chosen on the device in this step.
    chosen: the parent of each row; `first` is the number of row 0. Returns the child of each row.
    """
    if len(chosen) > 1 or len(request.live) > 1:  # otherwise the only sequence continues in place
        children = _descend(request, [parent for _, parent in chosen], kv)
        chosen = [(row, child) for (row, _), child in zip(chosen, children, strict=True)]
    for row, child in chosen:
        child.tokens.append(-1 - first - row)
        kv.commit(child, child.computed)
    request.output_tokens += len(chosen)
    return chosen


def resolve_placeholder(sequence: Sequence, token: int, detail: TokenLogprobs | None) -> Delta:
    """Replaces a placeholder by its token, whether or not the sequence still holds memory."""
    sequence.tokens[-1] = token
    if detail is not None:
        sequence.details.append(detail)
    return _delta(sequence, *_cut([token], sequence.request.stop_ids, sequence.room + 1))


def apply_completion(request: Request, completion: Completion) -> list[Delta]:
    """Returns a delta for each choice of a request that its strategy ends.

    The caller frees the memory of the sequences that are still live.
    """
    request.ended = len(completion.choices)
    # Each live sequence got its next token, whether or not a choice ends with it.
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


def compute_again(request: Request) -> None:
    """Has the last token of each sequence computed again, without drafts, for the same logits.

    Its position has not been committed: that comes with a decision.
    """
    for sequence in request.live:
        sequence.computed = len(sequence.tokens) - 1
        sequence.draft = []


def _descend(request: Request, parents: list[Sequence], kv: KVCache) -> list[Sequence]:
    """Returns a child for each of `parents`, which become the live sequences of the request.

    A parent named once continues in place, one named again forks, and one not named is released.
    """
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
    """Appends the tokens of a continuation, up to the first stop."""
    tokens, reason = _cut(continuation.tokens, sequence.request.stop_ids, sequence.room)
    # The KV of accepted draft tokens exists already; one token must be left to compute, for the next logits.
    sequence.computed = len(sequence.tokens) + min(_agreed(sequence.draft, tokens), len(tokens) - 1)
    sequence.tokens += tokens
    sequence.draft = []
    sequence.logprob += continuation.logprob
    sequence.score = continuation.score
    if continuation.details is not None:
        sequence.details += continuation.details[: len(tokens)]
    return _delta(sequence, tokens, reason)


def _delta(sequence: Sequence, tokens: list[int], reason: str | None) -> Delta:
    """Returns the delta for a sequence that was just continued with `tokens`."""
    request = sequence.request
    shown = tokens if request.decoding.streams else sequence.output if reason else []
    scored = request.spec.params.logprobs is not None
    index = sequence.index
    if reason:
        if not request.decoding.streams:
            index = request.choice_index(index)
        request.ended += 1
    return Delta(
        request_id=request.spec.id,
        index=index,
        tokens=shown,
        logprobs=sequence.details[len(sequence.details) - len(shown) :] if scored else None,
        finish_reason=reason,
        stop_token=tokens[-1] if reason == "stop" else None,
        cached_tokens=request.cached_tokens,
    )


def _agreed(draft: list[int], tokens: list[int]) -> int:
    """Counts the leading draft tokens that were accepted."""
    if not draft:
        return 0
    pairs = enumerate(zip(draft, tokens, strict=False))
    return next(
        (count for count, (drafted, token) in pairs if drafted != token), min(len(draft), len(tokens))
    )


def _cut(tokens: list[int], stops: frozenset[int], room: int) -> tuple[list[int], str | None]:
    """Cuts tokens at the first stop or at the limit; returns them and the finish reason, None for neither."""
    if len(tokens) < room and stops.isdisjoint(tokens):  # nearly always
        return tokens, None
    for count, token in enumerate(tokens[:room], 1):
        if token in stops:
            return tokens[:count], "stop"
    return tokens[:room], "length" if len(tokens) >= room else None
