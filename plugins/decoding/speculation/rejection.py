"""Verification by rejection sampling: the tokens are distributed as the model's own samples are.

Leviathan, Kalman and Matias, "Fast Inference from Transformers via Speculative Decoding", ICML 2023. A draft
token x, drawn from q, is accepted with probability min(1, p(x) / q(x)). The first rejected one is replaced by
a draw from max(0, p - q); if all are accepted, one more token is drawn from p.

The device finds the first rejected draft token, without a synchronization::

    rows       0   1   2   3        of a draft of three tokens, two of which are accepted
    draft      7   4   9   0
    chances   .2  .9  .4  inf       less than p / q in the first two rows
    follows    7   4   5  -1        5 is drawn in row 2, from the rest of p
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
from turnout.sampling.draws import noise_key_of
from turnout.sampling.exponential_race import exponential_race
from turnout.sampling.noise import seed_tensor, uniform

__all__ = ["UNUSABLE", "by_rejection"]

UNUSABLE = -2
"""Stands behind a draft token whose probabilities are none."""


def by_rejection(logits: Tensor, drafts: Sequence[Draft]) -> Tensor:
    """The token that follows each row, int64 [rows]: a draft's accepted tokens, one more token, then -1.

    Where a token is rejected whose probabilities are not finite, or 0 for itself, the model's own is drawn,
    and `UNUSABLE` follows instead of -1.

    logits: fp32 [rows, vocab_size], adjusted; the rows of each draft lie together, in the order of drafts.
    All drafts have tokens, with probabilities. Tokens are accepted by other noise than they were drawn
    with.
    """
    device = logits.device
    weights = token_weights(logits, [row.params for draft in drafts for row in draft.rows])
    target = weights / weights.sum(dim=-1, keepdim=True)
    drawn_from = torch.cat([_probabilities(draft, device) for draft in drafts])
    counts = np.array([len(draft.tokens) for draft in drafts])
    numbers, draft_tokens, of, indices, sources = to_device(_rows(drafts, counts), device)
    chances, seed = to_device(_chances(drafts), device), seed_tensor(_keys(drafts), device)
    q = drawn_from[sources, draft_tokens]
    passes = (q > 0) & (chances < target[numbers, draft_tokens] / q)
    # The rows of each draft; its last row, where none passes, fills up to the most rows of any draft.
    ends = (counts + 1).cumsum()
    table = np.minimum((ends - counts - 1)[:, None] + np.arange(counts.max() + 1), ends[:, None] - 1)
    rows = to_device(table, device)
    accepted = passes[rows].long().cumprod(dim=1).sum(dim=1)
    last = rows.gather(1, accepted[:, None]).squeeze(1)
    p, other, rejected = target[last], drawn_from[sources[last]], chances[last].isfinite()
    usable = (q[last] > 0) & other.sum(dim=-1).isfinite()
    tokens = exponential_race(torch.where((rejected & usable)[:, None], _residual(p, other), p), seed[last])
    nothing = torch.where(rejected & ~usable, UNUSABLE, -1)
    behind = torch.where(indices == accepted[of], tokens[of], nothing[of])
    return torch.where(indices < accepted[of], draft_tokens, behind)


def _probabilities(draft: Draft, device: torch.device) -> Tensor:
    assert draft.probabilities is not None
    return draft.probabilities[: len(draft.tokens)].to(device, torch.float32)


def _rows(drafts: Sequence[Draft], counts: Numbers) -> Numbers:
    """For each row its number, token, draft, index within the draft, and its token's number: [5, rows].

    The last row of a draft has no draft token; its values there are arbitrary.
    """
    draft_tokens = np.array([token for draft in drafts for token in (*draft.tokens, 0)])
    numbers, of = np.arange(len(draft_tokens)), np.repeat(np.arange(len(drafts)), counts + 1)
    indices = ranges(np.zeros_like(counts), counts + 1)
    return np.stack([numbers, draft_tokens, of, indices, np.minimum(numbers - of, counts.sum() - 1)])


def _chances(drafts: Sequence[Draft]) -> npt.NDArray[np.float64]:
    """[rows]: a row's draft token is accepted if its chance is below p / q; infinite where a row has none."""
    return np.array(
        [
            chance
            for draft in drafts
            for chance in (*(uniform(noise_key_of(row, b"accept")) for row in draft.rows[:-1]), np.inf)
        ]
    )


def _keys(drafts: Sequence[Draft]) -> list[int]:
    """[rows]: keys of the noise that a row's token is drawn with, if no later row of its draft is reached."""
    return [
        key
        for draft in drafts
        for key in (
            *(noise_key_of(row, b"residual") for row in draft.rows[:-1]),
            noise_key_of(draft.rows[-1]),
        )
    ]


def _residual(p: Tensor, q: Tensor) -> Tensor:
    residual = (p - q).clamp_min(0)
    # An empty residual: p and q are equal but for rounding, and a draw from q is one from p.
    return torch.where(residual.sum(dim=-1, keepdim=True) > 0, residual, p)
