"""Verification by rejection sampling: what comes out is distributed as the model's own samples are.

Leviathan, Kalman and Matias, "Fast Inference from Transformers via Speculative Decoding", ICML 2023. A guess
x, drawn from q, is accepted with probability min(1, p(x) / q(x)); the first that is not is replaced by a draw
from max(0, p - q), and behind the last guess a token is drawn from p.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate

import numpy as np
import torch
from torch import Tensor

from turnout.core.logits_processor import Row
from turnout.kernels.gpu.staging import carry, pick_rows
from turnout.plugins.decoding.distribution import token_weights
from turnout.plugins.decoding.drafts import Draft
from turnout.plugins.decoding.draw import key_of
from turnout.plugins.decoding.noise import uniform
from turnout.plugins.decoding.race import race

__all__ = ["by_rejection"]


def by_rejection(logits: Tensor, drafts: Sequence[Draft]) -> list[list[int]]:
    """For each draft, all with probabilities, its accepted guesses and one token more.

    logits: fp32 [rows, vocab_size], adjusted already, of one draft's rows after the other's. Whether a guess
    is accepted depends on noise that it was not drawn with.
    """
    rows = [row for draft in drafts for row in draft.rows]
    weights = token_weights(logits, [row.params for row in rows])
    target = weights / weights.sum(dim=-1, keepdim=True)
    starts = list(accumulate((len(draft.guesses) + 1 for draft in drafts[:-1]), initial=0))
    ratios = _ratios(target, drafts, starts)
    accepted, finals, keys = [], [], []
    for draft, start, passes in zip(drafts, starts, ratios, strict=True):
        count = _accepted(passes, draft.rows)
        last, row = target[start + count], rows[start + count]
        rejected = count < len(draft.guesses)
        accepted.append(count)
        finals.append(_residual(last, _probabilities(draft)[count]) if rejected else last)
        keys.append(key_of(row, b"residual" if rejected else b""))
    tokens = race(torch.stack(finals), keys).tolist()
    return [
        [*draft.guesses[:count], token] for draft, count, token in zip(drafts, accepted, tokens, strict=True)
    ]


def _probabilities(draft: Draft) -> Tensor:
    assert draft.probabilities is not None
    return draft.probabilities[: len(draft.guesses)]


def _ratios(target: Tensor, drafts: Sequence[Draft], starts: Sequence[int]) -> list[list[float]]:
    """p / q of each guess of each draft."""
    places = [
        start + n for draft, start in zip(drafts, starts, strict=True) for n in range(len(draft.guesses))
    ]
    tokens = np.array([token for draft in drafts for token in draft.guesses], dtype=np.int64)
    guesses = carry(tokens[:, None], target.device)
    q = torch.cat([_probabilities(draft) for draft in drafts]).gather(1, guesses)
    p = pick_rows(target, places).gather(1, guesses)
    flat = iter((p / q.clamp_min(torch.finfo(q.dtype).tiny)).squeeze(1).tolist())
    return [[next(flat) for _ in draft.guesses] for draft in drafts]


def _accepted(ratios: Sequence[float], rows: Sequence[Row]) -> int:
    """How many guesses from the first on pass."""
    for count, (ratio, row) in enumerate(zip(ratios, rows, strict=False)):
        if uniform(key_of(row, b"accept")) >= ratio:
            return count
    return len(ratios)


def _residual(p: Tensor, q: Tensor) -> Tensor:
    left = (p - q).clamp_min(0)
    # None left: they are equal but for rounding, and the guess was as good a draw from p as any.
    return torch.where(left.sum() > 0, left, p)
