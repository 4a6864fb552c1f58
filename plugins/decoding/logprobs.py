"""Log-probabilities of chosen tokens, for the requests that want them."""

from __future__ import annotations

import torch
from torch import Tensor

from turnout.core.request import TokenLogprobs

__all__ = ["token_logprobs"]


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
    best = logprobs.topk(max(count or 0 for count in wanted))
    for row, token, logprob, values, ids in zip(
        rows, tokens[rows].tolist(), chosen, best.values.tolist(), best.indices.tolist(), strict=True
    ):
        count = wanted[row]
        result[row] = TokenLogprobs(token, logprob, list(zip(ids, values, strict=True))[:count])
    return result
