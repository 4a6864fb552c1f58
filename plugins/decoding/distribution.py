"""The distribution that a request samples from: logits shaped by temperature, top-k, top-p and min-p."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import torch
from torch import Tensor

from turnout.core.request import SamplingParams

__all__ = ["column", "token_weights"]

NUCLEUS_GUESS = 256
"""Likeliest tokens looked at before a whole vocabulary is sorted for top-p."""


def token_weights(logits: Tensor, params: Sequence[SamplingParams]) -> Tensor:
    """Probabilities up to a factor for each row, fp32 [rows, vocab_size]; what is cut off has none.

    logits: fp32 [rows, vocab_size], adjusted already.
    """
    weights = _tempered(logits, params)
    ranked = [row for row, p in enumerate(params) if p.top_k > 0 or p.top_p < 1]
    if len(ranked) == len(params):
        return _cut(weights, params)
    if ranked:
        weights[ranked] = _cut(weights[ranked], [params[row] for row in ranked])
    return weights


def _tempered(logits: Tensor, params: Sequence[SamplingParams]) -> Tensor:
    """The likeliest token's weight is 1, and those below min_p are 0.

    The row's maximum goes before the division, so that a tiny temperature cannot overflow.
    """
    temperature = column((p.temperature for p in params), logits).clamp_min(1e-30)
    weights = ((logits - logits.amax(dim=-1, keepdim=True)) / temperature).exp()
    if any(p.min_p for p in params):
        weights = weights.masked_fill(weights < column((p.min_p for p in params), weights), 0)
    return weights


def _cut(weights: Tensor, params: Sequence[SamplingParams]) -> Tensor:
    """Among the top_k likeliest, those whose likelier ones sum to less than top_p of them all."""
    limits = [p.top_k if p.top_k > 0 else weights.shape[-1] for p in params]
    values, indices = _likeliest(weights, params, limits)
    ranks = torch.arange(values.shape[-1], device=values.device)
    values = values.masked_fill(ranks >= column(limits, values), 0)
    whole = torch.tensor([[p.top_k <= 0] for p in params]).to(values.device)
    total = torch.where(whole, weights.sum(dim=-1, keepdim=True), values.sum(dim=-1, keepdim=True))
    likelier = values.cumsum(dim=-1) - values
    # The likeliest stays whatever top_p: one too small for fp32 would leave nothing.
    beyond = (likelier >= total * column((p.top_p for p in params), total)) & (ranks > 0)
    return torch.zeros_like(weights).scatter_(1, indices, values.masked_fill(beyond, 0))


def _likeliest(
    weights: Tensor, params: Sequence[SamplingParams], limits: Sequence[int]
) -> tuple[Tensor, Tensor]:
    """Weights and token ids, likeliest first, as many as any row may need: [rows, some].

    Among equals the lower id comes first, whatever the batch: the keys to sort by are all different.
    """
    ids = torch.arange(weights.shape[-1], device=weights.device)
    keys = weights.double() - ids * 1e-14
    count = min(max(limits), weights.shape[-1])
    if count > NUCLEUS_GUESS and weights.device.type == "cpu":  # elsewhere the question costs a sync
        guess = keys.topk(NUCLEUS_GUESS).indices
        covered = weights.gather(1, guess).sum(dim=-1) >= _nucleus(weights, params, limits)
        if bool(covered.all()):
            return weights.gather(1, guess), guess
    indices = keys.topk(count).indices
    return weights.gather(1, indices), indices


def _nucleus(weights: Tensor, params: Sequence[SamplingParams], limits: Sequence[int]) -> Tensor:
    """The weight that a row's likeliest tokens must reach for no more of them to be needed: [rows].

    A row cut by a small top_k needs none; one cut by a large top_k is asked for its share of the whole,
    which is more than its share of the cut.
    """
    shares = [p.top_p if limit > NUCLEUS_GUESS else 0.0 for p, limit in zip(params, limits, strict=True)]
    return weights.sum(dim=-1) * column(shares, weights).squeeze(1)


def column(values: Iterable[float], like: Tensor) -> Tensor:
    """[rows, 1] on the device and in the dtype of `like`."""
    return torch.tensor([[value] for value in values], dtype=like.dtype).to(like.device, non_blocking=True)
