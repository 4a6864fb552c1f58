"""Top-k and top-p of many rows, without a sort."""

from __future__ import annotations

import torch
from torch import Tensor

from turnout.sampling.gpu.cut_programs import cut_rows

__all__ = ["cut"]

BLOCK = 4096
"""Tokens that a program reads at a time."""


def cut(weights: Tensor, limits: Tensor, shares: Tensor, whole: Tensor) -> Tensor:
    """The weights, 0 for tokens that are cut off. weights: fp32 [rows, vocab_size], from 0 to 1, contiguous.

    limits: int32 [rows], how many of the likeliest are in; of equals those with lower ids. shares: fp32
    [rows], of the sum of all weights where `whole`, int32 [rows], is not 0, else of those that are in: a
    token whose likelier ones sum to that or more is cut off, too, but never the likeliest.
    """
    out = torch.empty_like(weights)
    cut_rows[len(weights),](weights, limits, shares, whole, out, weights.shape[1], BLOCK=BLOCK, num_warps=8)
    return out
