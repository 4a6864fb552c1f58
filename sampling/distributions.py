"""The distribution that a request samples from: its logits after temperature, min-p, top-k and top-p."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

import torch
from torch import Tensor

from turnout.core.types.sampling_params import SamplingParams
from turnout.kernels.gpu.choice import triton_problem
from turnout.kernels.gpu.staging import gather_rows, scatter_rows, to_device

__all__ = ["column", "token_weights", "truncate_by_kernel", "truncate_by_sorting"]

SMALL_NUCLEUS = 256
"""The number of most likely tokens that are tried for top-p before a whole vocabulary is sorted."""


def token_weights(logits: Tensor, params: Sequence[SamplingParams]) -> Tensor:
    """Unnormalized probabilities, fp32 [rows, vocab_size]; excluded tokens have weight 0.

    logits: fp32 [rows, vocab_size], adjusted by the logits processors.
    """
    weights = _tempered(logits, params)
    truncated = [row for row, p in enumerate(params) if p.top_k > 0 or p.top_p < 1]
    if len(truncated) == len(params):
        return _truncate(weights, params)
    if truncated:
        rows = _truncate(gather_rows(weights, truncated), [params[row] for row in truncated])
        scatter_rows(weights, truncated, rows)
    return weights


def _tempered(logits: Tensor, params: Sequence[SamplingParams]) -> Tensor:
    """Weights after temperature and min-p; that of the most likely token is 1.

    The row's maximum is subtracted before the division, so that a tiny temperature cannot overflow.
    """
    temperature = column((p.temperature for p in params), logits).clamp_min(1e-30)
    weights = ((logits - logits.amax(dim=-1, keepdim=True)) / temperature).exp()
    if any(p.min_p for p in params):
        weights = weights.masked_fill(weights < column((p.min_p for p in params), weights), 0)
    return weights


def _truncate(weights: Tensor, params: Sequence[SamplingParams]) -> Tensor:
    """Keeps the top_k most likely tokens, and of these each whose likelier ones sum to less than top_p."""
    if weights.device.type == "cuda" and triton_problem(weights.device) is None:
        return truncate_by_kernel(weights, params)
    return truncate_by_sorting(weights, params)


def truncate_by_kernel(weights: Tensor, params: Sequence[SamplingParams]) -> Tensor:
    """As `truncate_by_sorting`, except where a sum is as near to top_p as float32 rounds."""
    from turnout.sampling.gpu.truncation import truncate

    vocabulary, device = weights.shape[1], weights.device
    limits = torch.tensor([_limit(p, vocabulary) for p in params], dtype=torch.int32)
    whole = torch.tensor([p.top_k <= 0 for p in params], dtype=torch.int32)
    shares = torch.tensor([p.top_p for p in params], dtype=torch.float32)
    return truncate(weights.contiguous(), *(to_device(values, device) for values in (limits, shares, whole)))


def _limit(params: SamplingParams, vocabulary: int) -> int:
    return min(params.top_k, vocabulary) if params.top_k > 0 else vocabulary


def truncate_by_sorting(weights: Tensor, params: Sequence[SamplingParams]) -> Tensor:
    """Of tokens with equal weights, the lower ids rank first.

    On a CPU, a whole vocabulary is sorted only for rows whose few most likely tokens are not enough; on other
    devices finding those would cost a synchronization.
    """
    limits = [_limit(p, weights.shape[-1]) for p in params]
    # Of equal weights the lower id comes first in every batch: the keys to sort by are all different.
    keys = weights.double() - torch.arange(weights.shape[-1], device=weights.device) * 1e-14
    if max(limits) <= SMALL_NUCLEUS or weights.device.type != "cpu":
        return _keep(weights, keys.topk(max(limits)).indices, params, limits)
    few = keys.topk(SMALL_NUCLEUS).indices
    rows = _uncovered(weights, few, params, limits)
    if len(rows) == len(limits):
        return _keep(weights, keys.topk(max(limits)).indices, params, limits)
    kept = _keep(weights, few, params, limits)
    if rows:
        params, limits = [params[row] for row in rows], [limits[row] for row in rows]
        kept[rows] = _keep(weights[rows], keys[rows].topk(max(limits)).indices, params, limits)
    return kept


def _keep(weights: Tensor, ranked: Tensor, params: Sequence[SamplingParams], limits: Sequence[int]) -> Tensor:
    """Weights of those tokens that top-k and top-p keep; 0 for all others.

    ranked: ids of the most likely tokens, in that order, as many as any row needs: [rows, some].
    """
    values = weights.gather(1, ranked)
    ranks = torch.arange(values.shape[-1], device=values.device)
    values = values.masked_fill(ranks >= column(limits, values), 0)
    whole = to_device(torch.tensor([[limit == weights.shape[-1]] for limit in limits]), values.device)
    upto = values.cumsum(dim=-1)
    # The last of the sums, because how `sum` adds depends on how many are ranked for other rows of the batch.
    total = torch.where(whole, weights.sum(dim=-1, keepdim=True), upto[:, -1:])
    # The most likely token always stays, even with a top_p too small for fp32; a top_p of 1 cuts no token.
    shares = column((p.top_p if p.top_p < 1 else math.inf for p in params), total)
    beyond = (upto - values >= total * shares) & (ranks > 0)
    return torch.zeros_like(weights).scatter_(1, ranked, values.masked_fill(beyond, 0))


def _uncovered(
    weights: Tensor, few: Tensor, params: Sequence[SamplingParams], limits: Sequence[int]
) -> list[int]:
    """Returns the rows that need more than their `few` most likely tokens.

    A row with a small top_k does not, another one unless they weigh top_p; with a top_p of a large top_k all
    tokens of which are summed, it does.
    """
    covered = weights.gather(1, few).sum(dim=-1) >= weights.sum(dim=-1) * column(
        (p.top_p for p in params), weights
    ).squeeze(1)
    return [
        row
        for row, (p, limit, enough) in enumerate(zip(params, limits, covered.tolist(), strict=True))
        if limit > SMALL_NUCLEUS and not (enough and (limit == weights.shape[-1] or p.top_p >= 1))
    ]


def column(values: Iterable[float], like: Tensor) -> Tensor:
    """The values as [rows, 1], on the device and in the dtype of `like`."""
    return to_device(torch.tensor([[value] for value in values], dtype=like.dtype), like.device)
