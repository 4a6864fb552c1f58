"""Verifying guesses: a row of logits says what the model has there, as far as the guesses were right."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import accumulate

import numpy as np
from torch import Tensor

from turnout.core.decision import Continuation, TokenLogprobs
from turnout.core.plan import Logits
from turnout.core.processors import adjust
from turnout.kernels.gpu.staging import carry, pick_rows
from turnout.plugins.decoding.choose import choose
from turnout.plugins.decoding.drafts import Draft
from turnout.plugins.decoding.logprobs import token_logprobs
from turnout.plugins.decoding.rejection import by_rejection

__all__ = ["verify"]

Check = Callable[[Tensor, Sequence[Draft]], list[list[int]]]


def verify(drafts: Sequence[Draft], logits: Logits) -> Iterable[Continuation]:
    """For each draft its accepted guesses and one token more."""
    raw = logits.of(draft.sequence for draft in drafts).float()
    adjusted = adjust(raw, [row for draft in drafts for row in draft.rows])
    tokens = _checked(adjusted, drafts)
    details = _details(raw, drafts, tokens)
    for draft, chosen, detail in zip(drafts, tokens, details, strict=True):
        yield Continuation(draft.sequence, chosen, details=detail)


def exactly(logits: Tensor, drafts: Sequence[Draft]) -> list[list[int]]:
    """Accept the guesses that would have been chosen without them.

    logits: fp32 [rows, vocab_size], adjusted already, of one draft's rows after the other's.
    """
    chosen = iter(choose(logits, [row for draft in drafts for row in draft.rows]).tolist())
    return [_agreed(draft.guesses, [next(chosen) for _ in draft.rows]) for draft in drafts]


def _agreed(guesses: Sequence[int], chosen: list[int]) -> list[int]:
    for count, guess in enumerate(guesses):
        if guess != chosen[count]:
            return chosen[: count + 1]
    return chosen


def _checked(adjusted: Tensor, drafts: Sequence[Draft]) -> list[list[int]]:
    """Each draft in its own way."""
    spans, tokens = _spans(drafts), [list[int]() for _ in drafts]
    ways: dict[Check, list[int]] = {}
    for number, draft in enumerate(drafts):
        ways.setdefault(exactly if draft.probabilities is None else by_rejection, []).append(number)
    for check, numbers in ways.items():
        places = [row for number in numbers for row in spans[number]]
        values = adjusted if len(ways) == 1 else pick_rows(adjusted, places)
        for number, chosen in zip(numbers, check(values, [drafts[n] for n in numbers]), strict=True):
            tokens[number] = chosen
    return tokens


def _spans(drafts: Sequence[Draft]) -> list[range]:
    """The rows of each draft."""
    ends = list(accumulate(len(draft.guesses) + 1 for draft in drafts))
    return [range(end - len(draft.guesses) - 1, end) for draft, end in zip(drafts, ends, strict=True)]


def _details(
    raw: Tensor, drafts: Sequence[Draft], tokens: Sequence[list[int]]
) -> list[list[TokenLogprobs] | None]:
    """Log-probabilities of each draft's tokens, where its request wants them."""
    wanted = [draft.sequence.request.params.logprobs for draft in drafts]
    if all(count is None for count in wanted):
        return [None] * len(drafts)
    spans = _spans(drafts)
    follow = np.zeros(len(raw), dtype=np.int64)
    counts: list[int | None] = [None] * len(raw)
    for span, chosen, count in zip(spans, tokens, wanted, strict=True):
        follow[span.start : span.start + len(chosen)] = chosen
        counts[span.start : span.start + len(chosen)] = [count] * len(chosen)
    scores = token_logprobs(raw, carry(follow, raw.device), counts)()
    return [[score for score in scores[span.start : span.stop] if score] or None for span in spans]
