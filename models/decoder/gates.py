"""What lies between the two products of a gated MLP."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

__all__ = ["BoundedGate", "gelu_gate", "silu_gate"]

Gate = Callable[[Tensor, Tensor], Tensor]


def silu_gate(gate: Tensor, up: Tensor) -> Tensor:
    """SwiGLU (https://arxiv.org/abs/2002.05202)."""
    return functional.silu(gate) * up


def gelu_gate(gate: Tensor, up: Tensor) -> Tensor:
    """GeGLU, with GELU's approximation by tanh (Gemma)."""
    return functional.gelu(gate, approximate="tanh") * up


@dataclass(frozen=True)
class BoundedGate:
    """(up + 1) · gate · sigmoid(slope · gate), both bounded (gpt-oss).

    gate is at most `limit`, and up at most that far from 0.
    """

    slope: float
    limit: float

    def __call__(self, gate: Tensor, up: Tensor) -> Tensor:
        gate = gate.clamp(max=self.limit)
        return (up.clamp(-self.limit, self.limit) + 1) * gate * torch.sigmoid(gate * self.slope)
