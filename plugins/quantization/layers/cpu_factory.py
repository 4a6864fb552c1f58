"""Builds a CPU's layers from quantized weights. See `layers/factory.py`."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from turnout.kernels import CpuKernels
from turnout.kernels.integers import Precision
from turnout.plugins.quantization.layers.blocks import BlockLinear, packed_blocks
from turnout.plugins.quantization.layers.fp8 import Fp8BlockLinear, Fp8Linear
from turnout.plugins.quantization.layers.int4 import Int4Linear
from turnout.plugins.quantization.layers.int8 import Int8GroupLinear, Int8Linear, Int8WeightLinear
from turnout.plugins.quantization.layers.native import NativeChannelLinear, NativeLinear

__all__ = ["CpuLayerFactory"]


class CpuLayerFactory:
    """Implements `LayerFactory`: by compiled kernels where there are some, else by PyTorch's operators."""

    def __init__(self, kernels: CpuKernels | None) -> None:
        self._kernels = kernels

    def int8(self, codes: Tensor, scale: Tensor, bias: Tensor | None) -> nn.Module:
        if self._kernels is None:
            return Int8Linear(codes, scale, bias)
        return _channels(Precision.W8A8, codes, scale, bias, self._kernels)

    def int8_weights(self, codes: Tensor, scale: Tensor, bias: Tensor | None) -> nn.Module:
        if self._kernels is None:
            return Int8WeightLinear(codes, scale, bias)
        return _channels(Precision.W8A16, codes, scale, bias, self._kernels)

    def int8_groups(
        self, codes: Tensor, scale: Tensor, offset: Tensor, bias: Tensor | None, order: Tensor | None
    ) -> nn.Module:
        if self._kernels is None or not self._kernels.integers.takes(codes.shape[1], scale.shape[1]):
            return Int8GroupLinear(codes, scale, offset, bias, order)
        signed = (codes.to(torch.int16) - 128).to(torch.int8)
        packed = self._kernels.integers.pack(Precision.W8A16, signed, scale, offset + 128 * scale, bias)
        return NativeLinear(packed, self._kernels.integers, order)

    def int4(
        self, codes: Tensor, scale: Tensor, offset: Tensor, bias: Tensor | None, order: Tensor | None
    ) -> nn.Module:
        if self._kernels is None:
            return Int4Linear(codes, scale, offset, bias, order)
        packed = self._kernels.integers.pack(Precision.W4A16, codes, scale, offset, bias)
        return NativeLinear(packed, self._kernels.integers, order)

    def blocks(self, blocks: Tensor, kind: str, bias: Tensor | None) -> nn.Module:
        if self._kernels is None:
            return BlockLinear(blocks, kind, bias)
        return packed_blocks(blocks, kind, bias, self._kernels)

    def fp8(self, codes: Tensor, scale: Tensor, bias: Tensor | None, activations: bool) -> nn.Module:
        return Fp8Linear(codes, scale, bias)

    def fp8_blocks(
        self, codes: Tensor, scale: Tensor, block: tuple[int, int], bias: Tensor | None
    ) -> nn.Module:
        return Fp8BlockLinear(codes, scale, block, bias)


def _channels(
    precision: Precision, codes: Tensor, scale: Tensor, bias: Tensor | None, kernels: CpuKernels
) -> NativeChannelLinear:
    packed = kernels.integers.pack(precision, codes, scale[:, None], None, bias)
    return NativeChannelLinear(packed, kernels.integers)
