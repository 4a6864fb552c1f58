"""Linear layers with weights of 8 or 4 bits, computed by compiled kernels."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor, nn

from turnout.kernels.integers import IntegerKernels, IntegerWeights
from turnout.models.decoder.packed import LayerCapabilities

__all__ = ["NativeChannelLinear", "NativeLinear"]


class NativeLinear(nn.Module):
    """Weights in panels; activations as integers with a scale for each token.

    A row has the same results, to the bit, alone and in any batch.
    """

    def __init__(self, weights: IntegerWeights, kernels: IntegerKernels, order: Tensor | None = None) -> None:
        """order: int64 [in], which input each column of the codes is for; None: in their own order."""
        super().__init__()
        self.weights, self.kernels = weights, kernels
        self.in_features, self.out_features = weights.inputs, weights.outputs
        self.register_buffer("numbers", weights.numbers)
        self.register_buffer("shift", weights.shift)
        self.register_buffer("scale", weights.scale)
        self.register_buffer("offset", weights.offset)
        self.register_buffer("bias", weights.bias)
        self.register_buffer("order", order)
        self._order = order

    def forward(self, x: Tensor) -> Tensor:
        """x: [..., in_features]; returns [..., out_features] in x's dtype."""
        return self.scaled(x.reshape(-1, self.in_features), None).view(*x.shape[:-1], self.out_features)

    def scaled(self, x: Tensor, largest: Tensor | None) -> Tensor:
        """Computes [rows, in_features], as `LayerCapabilities` have it; largest: None: of these rows."""
        rows = x if self._order is None else x[:, self._order]
        rows = rows.float() if x.dtype == torch.float16 else rows
        return self.kernels.linear(rows, self.weights, largest).to(x.dtype)

    @property
    def capabilities(self) -> LayerCapabilities:
        weights = self.weights if self._order is None else None
        return LayerCapabilities(join=self.join, scaled=self.scaled, native_weights=weights)

    def join(self, others: Sequence[nn.Module]) -> nn.Module | None:
        layers = [self, *(layer for layer in others if isinstance(layer, NativeLinear))]
        alike = all(layer._order is None for layer in layers)
        weights = [layer.weights for layer in layers]
        if len(layers) <= len(others) or not alike or not self.kernels.joins(weights):
            return None
        return NativeLinear(self.kernels.join(weights), self.kernels)

    def extra_repr(self) -> str:
        return (
            f"in_features={self.in_features}, out_features={self.out_features}, {self.weights.precision.name}"
        )


class NativeChannelLinear(NativeLinear):
    """8 bits, with a scale for each output."""

    @property
    def capabilities(self) -> LayerCapabilities:
        return replace(super().capabilities, rows=self.rows)

    def rows(self, tokens: Tensor) -> Tensor:
        return self.kernels.rows(self.weights, tokens)
