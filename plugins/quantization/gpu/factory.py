"""Builds a GPU's layers from quantized weights. See `layers/factory.py`."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from turnout.core.errors import ModelError
from turnout.models.gguf.numbers import QuantizedRows
from turnout.plugins.quantization.gpu.layers import CodesLinear, WeightOnlyLinear
from turnout.plugins.quantization.gpu.products import Weights

__all__ = ["GpuLayerFactory"]

NARROWEST = 32
"""Groups have multiples of this many inputs."""
WIDEST = 128
"""Inputs of a group of 4-bit weights that a program has room for; larger groups are split."""


class GpuLayerFactory:
    """Implements `LayerFactory`, by Triton's products."""

    @staticmethod
    def int8(codes: Tensor, scale: Tensor, bias: Tensor | None) -> nn.Module:
        return CodesLinear("int8", codes, scale, bias)

    @staticmethod
    def int8_weights(codes: Tensor, scale: Tensor, bias: Tensor | None) -> nn.Module:
        return WeightOnlyLinear(Weights("int8", codes, scale[:, None]), bias)

    @staticmethod
    def int8_groups(
        codes: Tensor, scale: Tensor, offset: Tensor, bias: Tensor | None, order: Tensor | None
    ) -> nn.Module:
        signed = (codes.to(torch.int16) - 128).to(torch.int8)
        group = _group(codes.shape[1], scale)
        return WeightOnlyLinear(Weights("int8", signed, scale, offset + 128 * scale, group), bias, order)

    @staticmethod
    def int4(
        codes: Tensor, scale: Tensor, offset: Tensor, bias: Tensor | None, order: Tensor | None
    ) -> nn.Module:
        group = _group(codes.shape[1], scale)
        part = min(WIDEST, group & -group)
        if part < group:  # a program takes a group at a time, and powers of two
            scale, offset = (values.repeat_interleave(group // part, dim=1) for values in (scale, offset))
            group = part
        return WeightOnlyLinear(Weights("int4", _packed(codes, group), scale, offset, group), bias, order)

    @staticmethod
    def blocks(blocks: Tensor, kind: str, bias: Tensor | None) -> nn.Module:
        rows = QuantizedRows.of(blocks, kind)
        wide, group = rows.scale.float(), _group(rows.codes.shape[1], rows.scale)
        if kind == "q8_0":
            return WeightOnlyLinear(Weights("int8", rows.codes, wide, None, group), bias)
        unsigned = (rows.codes + 8).view(torch.uint8)
        return GpuLayerFactory.int4(unsigned, wide, torch.zeros_like(wide), bias, None)

    @staticmethod
    def fp8(codes: Tensor, scale: Tensor, bias: Tensor | None, activations: bool) -> nn.Module:
        if activations and _multiplies_fp8(codes.device):
            return CodesLinear("fp8", codes.view(torch.int8), scale, bias)
        return WeightOnlyLinear(Weights("fp8", codes.view(torch.int8), scale[:, None]), bias)

    @staticmethod
    def fp8_blocks(codes: Tensor, scale: Tensor, block: tuple[int, int], bias: Tensor | None) -> nn.Module:
        rows, columns = block
        _check(columns)
        each = scale.repeat_interleave(rows, dim=0)[: len(codes)]
        return WeightOnlyLinear(Weights("fp8", codes.view(torch.int8), each, None, columns), bias)


def _group(inputs: int, scale: Tensor) -> int:
    group = inputs // scale.shape[1]
    _check(group)
    return group


def _check(group: int) -> None:
    if group % NARROWEST:
        raise ModelError(
            f"weights in groups of {group} inputs are not supported on a GPU; groups in multiples of "
            f"{NARROWEST} are"
        )


def _packed(codes: Tensor, group: int) -> Tensor:
    """codes: uint8 [out, in], 0 to 15; returns uint8 [out, in / 2] as `Weights` has them."""
    low, high = codes.view(len(codes), -1, 2, group // 2).unbind(2)
    return (low | (high << 4)).flatten(1)


def _multiplies_fp8(device: torch.device) -> bool:
    """Ada and Hopper on: others widen e4m3 to what they compute in."""
    return device.type == "cuda" and torch.cuda.get_device_capability(device) >= (8, 9)
