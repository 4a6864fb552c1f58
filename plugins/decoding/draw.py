"""Drawing tokens: one uniform number a row, and the inverse of the row's cumulative distribution."""

from __future__ import annotations

import struct
from hashlib import blake2b

import torch
from torch import Tensor

from turnout.core.logits_processor import Row
from turnout.core.request import SamplingParams
from turnout.plugins.decoding.candidates import column

__all__ = ["draw", "uniform"]

NUCLEUS_GUESS = 256
"""Likeliest tokens looked at before a whole vocabulary is sorted for top-p."""


def uniform(seed: int, index: int, position: int) -> float:
    """In [0, 1): a stable function of the request's seed, the choice and the position."""
    digest = blake2b(struct.pack("<qqq", seed, index, position), digest_size=8).digest()
    return float(int.from_bytes(digest, "little") >> 11) / float(2**53)


def draw(logits: Tensor, rows: list[Row]) -> Tensor:
    """A token for each row. logits: [rows, vocab_size] fp32; returns int64 [rows]."""
    noise = column((_noise(row) for row in rows), logits.new_empty(0, dtype=torch.float64))
    params = [row.params for row in rows]
    weights = _weights(logits, params)
    ranked = [row for row, p in enumerate(params) if p.top_k > 0 or p.top_p < 1]
    if not ranked:
        return _invert(weights, noise)
    if len(ranked) == len(params):
        return _draw_ranked(weights, noise, params)
    tokens = _invert(weights, noise)
    tokens[ranked] = _draw_ranked(weights[ranked], noise[ranked], [params[row] for row in ranked])
    return tokens


def _noise(row: Row) -> float:
    return uniform(row.request.spec.seed, row.index, row.position)


def _weights(logits: Tensor, params: list[SamplingParams]) -> Tensor:
    """Probabilities up to a factor: the likeliest token's is 1, and those below min_p are 0.

    The row's maximum goes before the division, so that a tiny temperature cannot overflow.
    """
    temperature = column((p.temperature for p in params), logits).clamp_min(1e-30)
    weights = ((logits - logits.amax(dim=-1, keepdim=True)) / temperature).exp()
    if any(p.min_p for p in params):
        weights = weights.masked_fill(weights < column((p.min_p for p in params), weights), 0)
    return weights


def _draw_ranked(weights: Tensor, noise: Tensor, params: list[SamplingParams]) -> Tensor:
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
    values = values.masked_fill(beyond, 0)
    return indices.gather(1, _invert(values, noise)[:, None]).squeeze(1)


def _likeliest(weights: Tensor, params: list[SamplingParams], limits: list[int]) -> tuple[Tensor, Tensor]:
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


def _nucleus(weights: Tensor, params: list[SamplingParams], limits: list[int]) -> Tensor:
    """The weight that a row's likeliest tokens must reach for no more of them to be needed: [rows].

    A row cut by a small top_k needs none; one cut by a large top_k is asked for its share of the whole,
    which is more than its share of the cut.
    """
    shares = [p.top_p if limit > NUCLEUS_GUESS else 0.0 for p, limit in zip(params, limits, strict=True)]
    return weights.sum(dim=-1) * column(shares, weights).squeeze(1)


def _invert(weights: Tensor, noise: Tensor) -> Tensor:
    """The first column whose cumulative weight exceeds `noise` of the total: int64 [rows]."""
    cumulative = weights.cumsum(dim=-1, dtype=torch.float64)
    total = cumulative[:, -1:]
    below = torch.nextafter(total, torch.zeros_like(total))
    drawn = torch.searchsorted(cumulative, torch.minimum(noise * total, below), right=True).squeeze(1)
    return drawn.clamp_max(weights.shape[-1] - 1)  # NaN is above all: it must not leave the vocabulary
