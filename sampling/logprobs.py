"""Log-probabilities of the chosen tokens and of the most likely ones, for requests that want them."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from turnout.core.types.logprobs import TokenLogprobs
from turnout.kernels.gpu.staging import gather_rows, to_host_async

__all__ = ["TopLogprobs", "token_logprobs", "top_logprobs"]

TopLogprobs = list[tuple[int, float]]
"""Tokens and their log-probabilities, best first."""


def token_logprobs(
    logits: Tensor, tokens: Tensor, wanted: list[int | None]
) -> Callable[[], list[TokenLogprobs | None]]:
    """Log-probabilities of each row's token and of its `wanted` most likely tokens; None where not wanted.

    The returned function waits for the device. logits: [rows, vocab_size] fp32, as the model computes them,
    before penalties, bias and temperature; tokens: [rows].
    """
    rows = [row for row, count in enumerate(wanted) if count is not None]
    if not rows:
        return lambda: [None] * len(wanted)
    logprobs = torch.log_softmax(gather_rows(logits, rows), dim=-1)
    ids = gather_rows(tokens, rows)
    chosen = to_host_async(logprobs.gather(1, ids[:, None]).squeeze(1))
    top, chosen_ids = top_logprobs(logprobs, [wanted[row] for row in rows]), to_host_async(ids)

    def read() -> list[TokenLogprobs | None]:
        result: list[TokenLogprobs | None] = [None] * len(wanted)
        numbers = zip(rows, chosen_ids().tolist(), chosen().tolist(), top(), strict=True)
        for row, token, logprob, most_likely in numbers:
            result[row] = TokenLogprobs(token, logprob, most_likely)
        return result

    return read


def top_logprobs(logprobs: Tensor, wanted: list[int | None]) -> Callable[[], list[TopLogprobs]]:
    """The `wanted` most likely tokens, or all, of each row of logprobs [rows, vocab_size]; None wants none.

    The returned function waits for the device.
    """
    most = min(max((count or 0 for count in wanted), default=0), logprobs.shape[-1])
    if not most:
        return lambda: [[] for _ in wanted]
    best = logprobs.topk(most)
    tokens, values = to_host_async(best.indices), to_host_async(best.values)

    def read() -> list[TopLogprobs]:
        rows = zip(wanted, tokens().tolist(), values().tolist(), strict=True)
        return [list(zip(ids, scores, strict=True))[: count or 0] for count, ids, scores in rows]

    return read
