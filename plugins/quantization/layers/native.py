"""Linear layers with weights of 8 or 4 bits, computed by compiled kernels."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor, nn

from turnout.core.interfaces.collective import Collective
from turnout.kernels.collectives.shm import native_group
from turnout.kernels.integers import IntegerKernels, IntegerWeights, adds_integers, magnitudes
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
        return replace(super().capabilities, rows=self.rows, exact=self.exact)

    def rows(self, tokens: Tensor) -> Tensor:
        return self.kernels.rows(self.weights, tokens)

    def exact(self, collective: Collective) -> nn.Module | None:
        if not adds_integers(self.weights, collective.size):
            return None
        return SharedChannelLinear(self.weights, self.kernels, collective)


class SharedChannelLinear(nn.Module):
    """W8A8 of whose inputs each rank has a part. Ranks round by the largest of a row, and add up integers.

    So the outputs have the bits of one device's, where sums of floats would depend on the ranks.
    """

    def __init__(self, weights: IntegerWeights, kernels: IntegerKernels, collective: Collective) -> None:
        super().__init__()
        # A bias is rank 0's, others have zeros. It is added where the sums are known: on all ranks.
        bias = None if weights.bias is None else collective.all_reduce(weights.bias.clone())
        self.weights = replace(weights, bias=bias)
        self.kernels, self.collective = kernels, collective
        self.in_features, self.out_features = weights.inputs, weights.outputs
        self.register_buffer("numbers", weights.numbers)
        self.register_buffer("shift", weights.shift)
        self.register_buffer("scale", weights.scale)
        self.register_buffer("bias", self.weights.bias)

    @property
    def capabilities(self) -> LayerCapabilities:
        group = native_group(self.collective)
        return LayerCapabilities(native_weights=None if group is None else self.weights, native_group=group)

    def forward(self, x: Tensor) -> Tensor:
        """x: [..., in_features], of this rank; returns [..., out_features] in its dtype, of all."""
        rows = x.reshape(-1, self.in_features)
        rows = rows.float() if x.dtype == torch.float16 else rows
        largest = self.collective.all_reduce_max(magnitudes(rows))
        sums = self.collective.all_reduce(self.kernels.sums(rows, self.weights, largest))
        out = self.kernels.finish(sums, self.weights, largest, rows.dtype)
        return out.to(x.dtype).view(*x.shape[:-1], self.out_features)
