"""Pooling by means over all tokens, summed in float64 block by block."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from turnout.core.interfaces.pooling import Pooling

__all__ = ["Mean", "SqrtMean", "WeightedMean"]


class Mean(Pooling):
    """The mean of all hidden states."""

    def fold(self, state: Tensor | None, hidden: Tensor, first: int) -> Tensor:
        total = hidden.double().sum(0)
        return total if state is None else state + total

    def vectors(self, state: Tensor, length: int) -> Tensor:
        return (state / length).float()


class SqrtMean(Mean):
    """The sum of all hidden states, divided by the square root of their number."""

    def vectors(self, state: Tensor, length: int) -> Tensor:
        return (state / math.sqrt(length)).float()


class WeightedMean(Pooling):
    """The mean of all hidden states, each weighted by its position from 1 on (Muennighoff 2022, SGPT)."""

    def fold(self, state: Tensor | None, hidden: Tensor, first: int) -> Tensor:
        weights = torch.arange(first + 1, first + 1 + len(hidden), device=hidden.device, dtype=torch.float64)
        total = (hidden.double() * weights[:, None]).sum(0)
        return total if state is None else state + total

    def vectors(self, state: Tensor, length: int) -> Tensor:
        return (state / (length * (length + 1) // 2)).float()
