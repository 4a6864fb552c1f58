"""The distribution that a request samples from: its logits after temperature, min-p, top-k and top-p."""

from __future__ import annotations

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
    """Of tokens with equal weights, the lower ids rank first."""
    limits = [_limit(p, weights.shape[-1]) for p in params]
    values, indices = _ranked(weights, params, limits)
    ranks = torch.arange(values.shape[-1], device=values.device)
    values = values.masked_fill(ranks >= column(limits, values), 0)
    whole = to_device(torch.tensor([[limit == weights.shape[-1]] for limit in limits]), values.device)
    total = torch.where(whole, weights.sum(dim=-1, keepdim=True), values.sum(dim=-1, keepdim=True))
    likelier = values.cumsum(dim=-1) - values
    # The most likely token always stays, even with a top_p too small for fp32.
    beyond = (likelier >= total * column((p.top_p for p in params), total)) & (ranks > 0)
    return torch.zeros_like(weights).scatter_(1, indices, values.masked_fill(beyond, 0))


def _ranked(
    weights: Tensor, params: Sequence[SamplingParams], limits: Sequence[int]
) -> tuple[Tensor, Tensor]:
    """Weights and token ids, most likely first, as many as any row may need: [rows, some].

    Of equal weights the lower id comes first in every batch: the keys to sort by are all different.
    """
    vocabulary = weights.shape[-1]
    keys = weights.double() - torch.arange(vocabulary, device=weights.device) * 1e-14
    count = max(limits)
    # Only on a CPU: on other devices the check would cost a synchronization.
    if count > SMALL_NUCLEUS and weights.device.type == "cpu" and _may_be_small(params, limits, vocabulary):
        most_likely = keys.topk(SMALL_NUCLEUS).indices
        covered = weights.gather(1, most_likely).sum(dim=-1) >= _nucleus(weights, params, limits)
        if bool(covered.all()):
            return weights.gather(1, most_likely), most_likely
    indices = keys.topk(count).indices
    return weights.gather(1, indices), indices


def _may_be_small(params: Sequence[SamplingParams], limits: Sequence[int], vocabulary: int) -> bool:
    """Whether a few most likely tokens may be enough for every row.

    They are not for a top_p of a large top_k, all tokens of which are summed.
    """
    return all(
        limit <= SMALL_NUCLEUS or limit == vocabulary or p.top_p >= 1
        for p, limit in zip(params, limits, strict=True)
    )


def _nucleus(weights: Tensor, params: Sequence[SamplingParams], limits: Sequence[int]) -> Tensor:
    """The weight from which on a row needs no more of its most likely tokens: [rows].

    It is 0 for a row with a small top_k.
    """
    shares = [p.top_p if limit > SMALL_NUCLEUS else 0.0 for p, limit in zip(params, limits, strict=True)]
    return weights.sum(dim=-1) * column(shares, weights).squeeze(1)


def column(values: Iterable[float], like: Tensor) -> Tensor:
    """The values as [rows, 1], on the device and in the dtype of `like`."""
    return to_device(torch.tensor([[value] for value in values], dtype=like.dtype), like.device)
