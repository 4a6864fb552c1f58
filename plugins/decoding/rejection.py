"""Verification by rejection sampling: what comes out is distributed as the model's own samples are.

Leviathan, Kalman and Matias, "Fast Inference from Transformers via Speculative Decoding", ICML 2023. A guess
x, drawn from q, is accepted with probability min(1, p(x) / q(x)); the first that is not is replaced by a draw
from max(0, p - q), and behind the last guess a token is drawn from p.

It is the device that finds out which guess that is, and nobody waits for it::

    places     0   1   2   3        of a draft of three guesses, two of which pass; of shorter ones the
    guesses    7   4   9   0        last places are nobody's
    chances   .2  .9  .4  inf       less than p / q at the first two
    follows    7   4   5  -1        5 is drawn at place 2, from what is left of p
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from turnout.core.logits_processor import Row
from turnout.kernels.gpu.staging import carry
from turnout.plugins.decoding.distribution import token_weights
from turnout.plugins.decoding.drafts import Draft
from turnout.plugins.decoding.draw import key_of
from turnout.plugins.decoding.noise import uniform
from turnout.plugins.decoding.race import race

__all__ = ["by_rejection"]


def by_rejection(logits: Tensor, drafts: Sequence[Draft]) -> Tensor:
    """What follows each row, int64 [rows]: of each draft its accepted guesses and one token more, then -1.

    logits: fp32 [rows, vocab_size], adjusted already, of one draft's rows after the other's. All drafts have
    guesses, with probabilities. Whether a guess is accepted depends on noise that it was not drawn with.
    """
    device, rows_of = logits.device, [draft.rows for draft in drafts]
    weights = token_weights(logits, [row.params for rows in rows_of for row in rows])
    target = weights / weights.sum(dim=-1, keepdim=True)
    drawn_from = torch.cat([_probabilities(draft) for draft in drafts])
    inside = _inside([len(rows) for rows in rows_of])
    rows, guesses, sources, seeds = carry(_places(drafts, rows_of, inside), device)
    chances = carry(_chances(rows_of, inside), device)
    q = _at(drawn_from, sources, guesses).clamp_min(torch.finfo(drawn_from.dtype).tiny)
    passes = chances < _at(target, rows, guesses) / q
    accepted = passes.long().cumprod(dim=1).sum(dim=1, keepdim=True)
    p = target.index_select(0, rows.gather(1, accepted).squeeze(1))
    left = _residual(p, drawn_from.index_select(0, sources.gather(1, accepted).squeeze(1)))
    rejected = chances.gather(1, accepted).isfinite()
    tokens = race(torch.where(rejected, left, p), seeds.gather(1, accepted).squeeze(1))
    places = torch.arange(inside.shape[1], device=device)
    behind = torch.where(places == accepted, tokens[:, None], -1)
    follows = torch.where(places < accepted, guesses, behind)
    return follows.view(-1).index_select(0, carry(np.flatnonzero(inside), device))


def _probabilities(draft: Draft) -> Tensor:
    assert draft.probabilities is not None
    return draft.probabilities[: len(draft.guesses)]


def _inside(lengths: Sequence[int]) -> npt.NDArray[np.bool_]:
    """Which places are a draft's: [drafts, most]."""
    return np.arange(max(lengths)) < np.array(lengths)[:, None]


def _places(
    drafts: Sequence[Draft], rows_of: Sequence[Sequence[Row]], inside: npt.NDArray[np.bool_]
) -> npt.NDArray[np.int64]:
    """Of each place its row, its guess, the guess's number among all, and the seed of a token that is drawn
    there: [4, drafts, most]."""
    guesses = [token for draft in drafts for token in (*draft.guesses, 0)]
    guessed = np.array([n < len(draft.guesses) for draft in drafts for n in range(len(draft.guesses) + 1)])
    keys = [key_of(row, b"residual" if row is not rows[-1] else b"") for rows in rows_of for row in rows]
    table = np.zeros((4, *inside.shape), dtype=np.int64)
    seeds = np.array(keys, dtype=np.uint64).view(np.int64)
    for places, numbers in zip(
        table, (np.arange(len(keys)), guesses, (guessed.cumsum() - 1) * guessed, seeds), strict=True
    ):
        places[inside] = numbers
    return table


def _chances(rows_of: Sequence[Sequence[Row]], inside: npt.NDArray[np.bool_]) -> npt.NDArray[np.float64]:
    """A place's guess passes if this is less than p / q: [drafts, most]; infinite where there is no guess."""
    chances = np.full(inside.shape, np.inf)
    for places, rows in zip(chances, rows_of, strict=True):
        places[: len(rows) - 1] = [uniform(key_of(row, b"accept")) for row in rows[:-1]]
    return chances


def _at(distributions: Tensor, rows: Tensor, tokens: Tensor) -> Tensor:
    """Probabilities of tokens: [drafts, most], as rows and tokens are."""
    flat = rows * distributions.shape[1] + tokens
    return distributions.reshape(-1).index_select(0, flat.view(-1)).view(rows.shape)


def _residual(p: Tensor, q: Tensor) -> Tensor:
    left = (p - q).clamp_min(0)
    # None left: they are equal but for rounding, and the guess was as good a draw from p as any.
    return torch.where(left.sum(dim=-1, keepdim=True) > 0, left, p)
