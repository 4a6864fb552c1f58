"""Packed linear layers of any kind, as the compiled kernels are told of them."""

from __future__ import annotations

import ctypes
from typing import NamedTuple

import torch
from torch import Tensor

from turnout.kernels.blocks import BlockWeights
from turnout.kernels.compiled import PackedWeights
from turnout.kernels.integers import LONG, POINTER, IntegerKernels, IntegerWeights, address

__all__ = ["FloatWeights", "LinearStruct", "LinearWeights", "linear_struct"]


class FloatWeights(NamedTuple):
    packed: PackedWeights
    bias: Tensor | None

    @property
    def inputs(self) -> int:
        return self.packed.inputs

    @property
    def outputs(self) -> int:
        return self.packed.outputs


LinearWeights = FloatWeights | IntegerWeights | BlockWeights

_FLOAT32, _BFLOAT16, _HALVES, _COMPRESSED_HALVES, _INTEGERS, _BLOCKS = 0, 1, 2, 3, 4, 16


class LinearStruct(ctypes.Structure):
    """``Linear`` of native/linears.h."""

    _fields_ = (
        *((name, POINTER) for name in ("numbers", "bias")),
        *((name, LONG) for name in ("inputs", "outputs", "kind")),
        *((name, POINTER) for name in ("shift", "scale", "offset")),
        *((name, LONG) for name in ("depth", "group", "levels")),
    )


def linear_struct(weights: LinearWeights, kernels: IntegerKernels) -> LinearStruct:
    """Describes a layer. Its tensors must stay where they are while the result is used."""
    if isinstance(weights, IntegerWeights):
        return _integers(weights, kernels)
    return _blocks(weights) if isinstance(weights, BlockWeights) else _floats(weights)


def _blocks(weights: BlockWeights) -> LinearStruct:
    return LinearStruct(
        *(weights.numbers.data_ptr(), address(weights.bias)),
        *(weights.inputs, weights.outputs, _BLOCKS + weights.number),
    )


def _floats(weights: FloatWeights) -> LinearStruct:
    packed = weights.packed
    kept = _BFLOAT16 if packed.numbers.dtype == torch.bfloat16 else _FLOAT32
    halves = _COMPRESSED_HALVES if packed.compressed else _HALVES
    kind = halves if packed.dtype == torch.bfloat16 else kept
    return LinearStruct(
        packed.numbers.data_ptr(), address(weights.bias), packed.inputs, packed.outputs, kind
    )  # fields of integer weights stay 0


def _integers(weights: IntegerWeights, kernels: IntegerKernels) -> LinearStruct:
    return LinearStruct(
        *(address(each) for each in (weights.numbers, weights.bias)),
        *(weights.inputs, weights.outputs, _INTEGERS + weights.precision.value),
        *(address(each) for each in (weights.shift, weights.scale, weights.offset)),
        *(weights.depth, weights.group, kernels.levels(weights.precision)),
    )
