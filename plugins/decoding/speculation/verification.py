"""Verification of draft tokens: each row of logits gives the model's token, up to the first rejected one."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import accumulate

import torch
from torch import Tensor

from turnout.core.engine.logits_processing import adjust
from turnout.core.types.decision import Continuation
from turnout.core.types.plan import Logits
from turnout.kernels.gpu.staging import gather_rows, scatter_rows, to_host_async
from turnout.plugins.decoding.speculation.drafts import Draft
from turnout.plugins.decoding.speculation.rejection import UNUSABLE, by_rejection
from turnout.sampling.choose import choose
from turnout.sampling.logprobs import token_logprobs

__all__ = ["verify"]


def verify(
    drafts: Sequence[Draft], logits: Logits, report_unusable: Callable[[], object] = lambda: None
) -> Iterable[Continuation]:
    """The accepted tokens of each draft and one more token. Waits for the device once.

    report_unusable: called if a draft was given up since its probabilities are none.
    """
    raw = logits.of(draft.sequence for draft in drafts).float()
    rows = [row for draft in drafts for row in draft.rows]
    follows = _follows(adjust(raw, rows), drafts)
    arrival = to_host_async(follows)
    details = token_logprobs(raw, follows.clamp_min(0), [row.params.logprobs for row in rows])
    tokens, scores = arrival().tolist(), details()
    if UNUSABLE in tokens:
        report_unusable()
    for draft, span in zip(drafts, _spans(drafts), strict=True):
        chosen = _accepted(draft.tokens, tokens[span.start : span.stop])
        scored = [score for score in scores[span.start : span.start + len(chosen)] if score is not None]
        yield Continuation(draft.sequence, chosen, details=scored or None)


def _follows(logits: Tensor, drafts: Sequence[Draft]) -> Tensor:
    """The token that each row chooses, int64 [rows]; negative behind one that is known to be rejected.

    logits: fp32 [rows, vocab_size], adjusted; the rows of each draft lie together, in the order of drafts.
    """
    with_probabilities = [draft.probabilities is not None for draft in drafts]
    if not any(with_probabilities):
        return choose(logits, [row for draft in drafts for row in draft.rows])
    if all(with_probabilities):
        return by_rejection(logits, drafts)
    follows, spans = torch.empty(len(logits), dtype=torch.int64, device=logits.device), _spans(drafts)
    for by_probabilities in (False, True):
        chosen = [number for number, each in enumerate(with_probabilities) if each is by_probabilities]
        rows = [row for number in chosen for row in spans[number]]
        scatter_rows(
            follows, rows, _follows(gather_rows(logits, rows), [drafts[number] for number in chosen])
        )
    return follows


def _accepted(draft_tokens: Sequence[int], follows: list[int]) -> list[int]:
    """The draft tokens that are right, and the token behind them."""
    for count, draft_token in enumerate(draft_tokens):
        if draft_token != follows[count] or follows[count + 1] < 0:
            return follows[: count + 1]
    return follows


def _spans(drafts: Sequence[Draft]) -> list[range]:
    """The rows of each draft."""
    ends = list(accumulate(len(draft.tokens) + 1 for draft in drafts))
    return [range(end - len(draft.tokens) - 1, end) for draft, end in zip(drafts, ends, strict=True)]
