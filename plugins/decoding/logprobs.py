"""Log-probabilities of chosen tokens, for the requests that want them."""

from __future__ import annotations

import torch
from torch import Tensor

from turnout.core.decision import TokenLogprobs

__all__ = ["TopLogprobs", "token_logprobs", "top_logprobs"]

TopLogprobs = list[tuple[int, float]]
"""Tokens and their log-probabilities, best first."""


def token_logprobs(logits: Tensor, tokens: Tensor, wanted: list[int | None]) -> list[TokenLogprobs | None]:
    """For each row None, or the log-probability of its token and of its `wanted` likeliest ones.

    logits: [rows, vocab_size] fp32, of the model itself: before penalties, bias and temperature;
    tokens: [rows].
    """
    result: list[TokenLogprobs | None] = [None] * len(wanted)
    rows = [row for row, count in enumerate(wanted) if count is not None]
    if not rows:
        return result
    logprobs = torch.log_softmax(logits[rows], dim=-1)
    chosen = logprobs.gather(1, tokens[rows, None]).squeeze(1).tolist()
    tops = top_logprobs(logprobs, [wanted[row] for row in rows])
    for row, token, logprob, top in zip(rows, tokens[rows].tolist(), chosen, tops, strict=True):
        result[row] = TokenLogprobs(token, logprob, top)
    return result


def top_logprobs(logprobs: Tensor, wanted: list[int | None]) -> list[TopLogprobs]:
    """For each row of logprobs [rows, vocab_size] its `wanted` likeliest tokens; None wants none."""
    most = max((count or 0 for count in wanted), default=0)
    if not most:
        return [[] for _ in wanted]
    best = logprobs.topk(most)
    return [
        list(zip(ids, values, strict=True))[: count or 0]
        for count, ids, values in zip(wanted, best.indices.tolist(), best.values.tolist(), strict=True)
    ]
