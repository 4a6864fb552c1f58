"""Random numbers, and how far a kernel's result is from what it should be."""

from __future__ import annotations

import torch
from torch import Tensor

__all__ = ["FLOATS", "ROWS", "error_of", "normal"]

ROWS = (1, 3, 20, 40)
"""Numbers of rows: few may go another way than many."""
FLOATS = {"float32": (torch.float32, 1e-5), "bfloat16": (torch.bfloat16, 2**-7)}
"""Dtypes, and the largest error as a part of the largest number of the result."""


def normal(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float32)


def error_of(found: Tensor, expected: Tensor) -> float:
    """A result that is not a number is infinitely wrong. expected: float64."""
    error = (found.double() - expected).abs().max() / expected.abs().max()
    return float(error.nan_to_num(nan=torch.inf))
