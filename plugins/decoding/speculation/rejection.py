"""Verification by rejection sampling: what comes out is distributed as the model's own samples are.

Leviathan, Kalman and Matias, "Fast Inference from Transformers via Speculative Decoding", ICML 2023. A guess
x, drawn from q, is accepted with probability min(1, p(x) / q(x)); the first that is not is replaced by a draw
from max(0, p - q), and behind the last guess a token is drawn from p.

It is the device that finds out which guess that is, and nobody waits for it::

    rows       0   1   2   3        of a draft of three guesses, two of which pass
    guesses    7   4   9   0
    chances   .2  .9  .4  inf       less than p / q in the first two
    follows    7   4   5  -1        5 is drawn in row 2, from what is left of p
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from turnout.kernels.gpu.staging import to_device
from turnout.kernels.ragged import Numbers, ranges
from turnout.plugins.decoding.speculation.drafts import Draft
from turnout.sampling.distributions import token_weights
from turnout.sampling.draws import key_of
from turnout.sampling.exponential_race import race
from turnout.sampling.noise import seeds, uniform

__all__ = ["by_rejection"]


def by_rejection(logits: Tensor, drafts: Sequence[Draft]) -> Tensor:
    """What follows each row, int64 [rows]: of each draft its accepted guesses and one token more, then -1.

    logits: fp32 [rows, vocab_size], adjusted already, of one draft's rows after the other's. All drafts have
    guesses, with probabilities. Whether a guess is accepted depends on noise that it was not drawn with.
    """
    device = logits.device
    weights = token_weights(logits, [row.params for draft in drafts for row in draft.rows])
    target = weights / weights.sum(dim=-1, keepdim=True)
    drawn_from = torch.cat([_probabilities(draft) for draft in drafts])
    counts = np.array([len(draft.guesses) for draft in drafts])
    numbers, guesses, of, places, sources = to_device(_rows(drafts, counts), device)
    chances, seed = to_device(_chances(drafts), device), seeds(_keys(drafts), device)
    q = drawn_from[sources, guesses].clamp_min(torch.finfo(drawn_from.dtype).tiny)
    passes = chances < target[numbers, guesses] / q
    # The rows of each draft, the last one again where others have more: no guess passes there.
    ends = (counts + 1).cumsum()
    table = np.minimum((ends - counts - 1)[:, None] + np.arange(counts.max() + 1), ends[:, None] - 1)
    rows = to_device(table, device)
    accepted = passes[rows].long().cumprod(dim=1).sum(dim=1)
    last = rows.gather(1, accepted[:, None]).squeeze(1)
    p, rejected = target[last], chances[last].isfinite()
    left = _residual(p, drawn_from[sources[last]])
    tokens = race(torch.where(rejected[:, None], left, p), seed[last])
    behind = torch.where(places == accepted[of], tokens[of], -1)
    return torch.where(places < accepted[of], guesses, behind)


def _probabilities(draft: Draft) -> Tensor:
    assert draft.probabilities is not None
    return draft.probabilities[: len(draft.guesses)]


def _rows(drafts: Sequence[Draft], counts: Numbers) -> Numbers:
    """Of each row its number, its guess, its draft, its place in that, and its guess's number: [5, rows].

    Behind the last guess of a draft there is none, and any will do.
    """
    guesses = np.array([token for draft in drafts for token in (*draft.guesses, 0)])
    numbers, of = np.arange(len(guesses)), np.repeat(np.arange(len(drafts)), counts + 1)
    places = ranges(np.zeros_like(counts), counts + 1)
    return np.stack([numbers, guesses, of, places, np.minimum(numbers - of, counts.sum() - 1)])


def _chances(drafts: Sequence[Draft]) -> npt.NDArray[np.float64]:
    """A row's guess passes if this is less than p / q: [rows]; infinite where there is no guess."""
    return np.array(
        [
            chance
            for draft in drafts
            for chance in (*(uniform(key_of(row, b"accept")) for row in draft.rows[:-1]), np.inf)
        ]
    )


def _keys(drafts: Sequence[Draft]) -> list[int]:
    """Of the noise for a token that is drawn in a row, if that turns out to be its draft's last."""
    return [
        key
        for draft in drafts
        for key in (*(key_of(row, b"residual") for row in draft.rows[:-1]), key_of(draft.rows[-1]))
    ]


def _residual(p: Tensor, q: Tensor) -> Tensor:
    left = (p - q).clamp_min(0)
    # None left: they are equal but for rounding, and the guess was as good a draw from p as any.
    return torch.where(left.sum(dim=-1, keepdim=True) > 0, left, p)
