"""Norms other than Llama's. Each takes the place of `RMSNorm`."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from turnout.models.decoder.layers import Norm

__all__ = ["LayerNorm", "OffsetRMSNorm"]


class OffsetRMSNorm(Norm):
    """The root mean square norm times 1 + weight, all in float32 (Gemma)."""

    def __init__(self, size: int, eps: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(size))
        self.eps = eps

    def forward(self, x: Tensor) -> Tensor:
        wide = x.float()
        wide = wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + self.eps)
        return (wide * (1.0 + self.weight.float())).to(x.dtype)


class LayerNorm(Norm):
    """Centres and scales, with weight and bias (https://arxiv.org/abs/1607.06450)."""

    def __init__(self, size: int, eps: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(size))
        self.bias = nn.Parameter(torch.empty(size))
        self.eps = eps

    def forward(self, x: Tensor) -> Tensor:
        return functional.layer_norm(x, self.weight.shape, self.weight, self.bias, self.eps)
