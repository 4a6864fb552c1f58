"""Top-k and top-p for many rows, without a sort."""

from __future__ import annotations

import torch
from torch import Tensor

from turnout.sampling.gpu.truncation_programs import truncate_rows

__all__ = ["truncate"]

BLOCK = 4096
"""Tokens that a program reads at a time."""


def truncate(weights: Tensor, limits: Tensor, shares: Tensor, whole: Tensor) -> Tensor:
    """The weights with 0 for excluded tokens. weights: fp32 [rows, vocab_size], from 0 to 1, contiguous.

    limits: int32 [rows], the number of most likely tokens that are kept; of equal weights the lower ids are
    kept. shares: fp32 [rows], of the sum of all weights where `whole`, int32 [rows], is not 0, otherwise of
    the kept ones: a token whose likelier ones sum to that or more is excluded, too, unless it is the
    most likely.
    """
    out = torch.empty_like(weights)
    truncate_rows[len(weights),](
        weights, limits, shares, whole, out, weights.shape[1], BLOCK=BLOCK, num_warps=8
    )
    return out
