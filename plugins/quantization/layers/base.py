"""Base classes of linear layers with quantized weights."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator

import torch
from torch import Tensor, nn

__all__ = ["DecodedLinear", "QuantizedLinear"]

DECODED_AT_ONCE = 2**19
"""Weights decoded at a time: 2 MiB of float32, which stay in a core's cache until they are multiplied."""


class QuantizedLinear(nn.Module):
    """Replaces an `nn.Linear`. Weights are buffers, since nothing is trained."""

    bias: Tensor | None

    def __init__(self, in_features: int, out_features: int, bias: Tensor | None) -> None:
        """bias: [out_features], kept in its own dtype."""
        super().__init__()
        self.in_features = in_features
        self.out_features = out_features
        self.register_buffer("bias", None if bias is None else bias.detach())

    def forward(self, x: Tensor) -> Tensor:
        """x: [..., in_features]; returns [..., out_features] in x's dtype."""
        rows = self.multiply(x.reshape(-1, self.in_features))
        if self.bias is not None:
            rows = rows.add_(self.bias)
        return rows.to(x.dtype).reshape(*x.shape[:-1], self.out_features)

    @abstractmethod
    def multiply(self, x: Tensor) -> Tensor:
        """x: [rows, in_features]; returns a new float32 [rows, out_features], without bias."""

    def extra_repr(self) -> str:
        return f"in_features={self.in_features}, out_features={self.out_features}"


class DecodedLinear(QuantizedLinear):
    """Decodes a few rows of weights to float32 at a time, and multiplies with them."""

    @abstractmethod
    def decode(self, start: int, stop: int) -> Tensor:
        """The weights of those output features: float32 [stop - start, in_features]."""

    def multiply(self, x: Tensor) -> Tensor:
        wide = x.float()
        out = torch.empty(len(x), self.out_features, dtype=torch.float32, device=x.device)
        for start, stop in self._row_ranges():
            out[:, start:stop] = wide @ self.decode(start, stop).t()
        return out

    def _row_ranges(self) -> Iterator[tuple[int, int]]:
        step = max(32, DECODED_AT_ONCE // self.in_features // 32 * 32)
        for start in range(0, self.out_features, step):
            yield start, min(start + step, self.out_features)
