"""Which layer computes with given codes: compiled kernels where there are some, else PyTorch's operators."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from turnout.kernels import Kernels
from turnout.kernels.integers import Kind
from turnout.plugins.quantization.layers.int4 import Int4Linear
from turnout.plugins.quantization.layers.int8 import Int8GroupLinear, Int8Linear, Int8WeightLinear
from turnout.plugins.quantization.layers.native import NativeChannelLinear, NativeLinear

__all__ = ["int4_layer", "int8_group_layer", "int8_layer", "int8_weight_layer"]


def int8_layer(codes: Tensor, scale: Tensor, bias: Tensor | None, kernels: Kernels | None) -> nn.Module:
    """W8A8. codes: int8 [out, in]; scale: float32 [out]; bias: [out]."""
    if kernels is None:
        return Int8Linear(codes, scale, bias)
    return _channels(Kind.W8A8, codes, scale, bias, kernels)


def int8_weight_layer(
    codes: Tensor, scale: Tensor, bias: Tensor | None, kernels: Kernels | None
) -> nn.Module:
    """W8A16, from what `int8_layer` takes."""
    if kernels is None:
        return Int8WeightLinear(codes, scale, bias)
    return _channels(Kind.W8A16, codes, scale, bias, kernels)


def int8_group_layer(
    codes: Tensor,
    scale: Tensor,
    offset: Tensor,
    bias: Tensor | None,
    order: Tensor | None,
    kernels: Kernels | None,
) -> nn.Module:
    """As `Int8GroupLinear`."""
    if kernels is None or not kernels.integers.takes(codes.shape[1], scale.shape[1]):
        return Int8GroupLinear(codes, scale, offset, bias, order)
    signed = (codes.to(torch.int16) - 128).to(torch.int8)
    packed = kernels.integers.pack(Kind.W8A16, signed, scale, offset + 128 * scale, bias)
    return NativeLinear(packed, kernels.integers, order)


def int4_layer(
    codes: Tensor,
    scale: Tensor,
    offset: Tensor,
    bias: Tensor | None,
    order: Tensor | None,
    kernels: Kernels | None,
) -> nn.Module:
    """As `Int4Linear`: weight = (code - 8) · scale + offset."""
    if kernels is None:
        return Int4Linear(codes, scale, offset, bias, order)
    packed = kernels.integers.pack(Kind.W4A16, codes, scale, offset, bias)
    return NativeLinear(packed, kernels.integers, order)


def _channels(
    kind: Kind, codes: Tensor, scale: Tensor, bias: Tensor | None, kernels: Kernels
) -> NativeChannelLinear:
    packed = kernels.integers.pack(kind, codes, scale[:, None], None, bias)
    return NativeChannelLinear(packed, kernels.integers)
