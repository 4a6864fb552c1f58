"""The distribution that a request samples from: logits shaped by temperature, top-k, top-p and min-p."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import torch
from torch import Tensor

from turnout.core.types.sampling_params import SamplingParams
from turnout.kernels.gpu.choice import triton_problem
from turnout.kernels.gpu.staging import gather_rows, scatter_rows, to_device

__all__ = ["column", "cut_by_kernel", "cut_by_sorting", "token_weights"]

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
        scatter_rows(weights, ranked, _cut(gather_rows(weights, ranked), [params[row] for row in ranked]))
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
    if weights.device.type == "cuda" and triton_problem(weights.device) is None:
        return cut_by_kernel(weights, params)
    return cut_by_sorting(weights, params)


def cut_by_kernel(weights: Tensor, params: Sequence[SamplingParams]) -> Tensor:
    """As `cut_by_sorting`, but where a sum is as near to top_p as float32 rounds."""
    from turnout.sampling.gpu.cut import cut

    vocabulary, device = weights.shape[1], weights.device
    limits = torch.tensor([_limit(p, vocabulary) for p in params], dtype=torch.int32)
    whole = torch.tensor([p.top_k <= 0 for p in params], dtype=torch.int32)
    shares = torch.tensor([p.top_p for p in params], dtype=torch.float32)
    return cut(weights.contiguous(), *(to_device(values, device) for values in (limits, shares, whole)))


def _limit(params: SamplingParams, vocabulary: int) -> int:
    return min(params.top_k, vocabulary) if params.top_k > 0 else vocabulary


def cut_by_sorting(weights: Tensor, params: Sequence[SamplingParams]) -> Tensor:
    """Of equals, those with lower ids are likelier."""
    limits = [_limit(p, weights.shape[-1]) for p in params]
    values, indices = _likeliest(weights, params, limits)
    ranks = torch.arange(values.shape[-1], device=values.device)
    values = values.masked_fill(ranks >= column(limits, values), 0)
    whole = to_device(torch.tensor([[limit == weights.shape[-1]] for limit in limits]), values.device)
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
    vocabulary = weights.shape[-1]
    keys = weights.double() - torch.arange(vocabulary, device=weights.device) * 1e-14
    count = max(limits)
    # Elsewhere than on a CPU the question costs a sync.
    if count > NUCLEUS_GUESS and weights.device.type == "cpu" and _guessable(params, limits, vocabulary):
        guess = keys.topk(NUCLEUS_GUESS).indices
        covered = weights.gather(1, guess).sum(dim=-1) >= _nucleus(weights, params, limits)
        if bool(covered.all()):
            return weights.gather(1, guess), guess
    indices = keys.topk(count).indices
    return weights.gather(1, indices), indices


def _guessable(params: Sequence[SamplingParams], limits: Sequence[int], vocabulary: int) -> bool:
    """Could a few likeliest tokens do for every row? Not for a share of a large top_k, which is summed."""
    return all(
        limit <= NUCLEUS_GUESS or limit == vocabulary or p.top_p >= 1
        for p, limit in zip(params, limits, strict=True)
    )


def _nucleus(weights: Tensor, params: Sequence[SamplingParams], limits: Sequence[int]) -> Tensor:
    """The weight that a row's likeliest tokens must reach for no more of them to be needed: [rows].

    A row cut by a small top_k needs none.
    """
    shares = [p.top_p if limit > NUCLEUS_GUESS else 0.0 for p, limit in zip(params, limits, strict=True)]
    return weights.sum(dim=-1) * column(shares, weights).squeeze(1)


def column(values: Iterable[float], like: Tensor) -> Tensor:
    """[rows, 1] on the device and in the dtype of `like`."""
    return to_device(torch.tensor([[value] for value in values], dtype=like.dtype), like.device)
