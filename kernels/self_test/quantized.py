"""Errors of linear layers whose weights are integers, or in blocks as GGUF files have them."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

from turnout.kernels.blocks import BLOCK_TYPES
from turnout.kernels.compiled import CpuKernels
from turnout.kernels.integers import Precision
from turnout.kernels.self_test.errors import error_of, normal

__all__ = ["Dequantized", "blocks", "integers"]

OUTPUTS, INPUTS = 130, 512
HALVES = {"q8_0": (0,), "q4_0": (0,), "q4_k": (0, 2), "q6_k": (208,)}
"""Where a block as it is stored has its scale, and offset, in float16."""

Dequantized = Callable[[Tensor, str], Tensor]
"""Takes uint8 [rows, bytes], blocks as a file has them, and their kind; returns float32 [rows, inputs]."""


def integers(kernels: CpuKernels, precision: Precision) -> float:
    """Weights are codes already; only inputs are rounded."""
    low, high = (0, 15) if precision is Precision.W4A16 else (-127, 127)
    codes = torch.randint(low, high + 1, (OUTPUTS, INPUTS), generator=torch.Generator().manual_seed(1))
    dtype = torch.uint8 if precision is Precision.W4A16 else torch.int8
    scale = (normal(OUTPUTS, 1).abs() + 0.1).bfloat16().float()
    center, offset = (8, torch.zeros_like(scale)) if precision is Precision.W4A16 else (0, None)
    packed = kernels.integers.pack(precision, codes.to(dtype), scale, offset, None)
    weight, x = (codes.double() - center) * scale.double(), normal(20, INPUTS, seed=2)
    found = torch.cat([kernels.integers.linear(x, packed), kernels.integers.linear(x[:3], packed)])
    return error_of(found, F.linear(x.double(), weight)[[*range(20), *range(3)]])


def blocks(kernels: CpuKernels, kind: str, dequantized: Dequantized, dtype: torch.dtype, rows: int) -> float:
    of = BLOCK_TYPES[kind]
    stored = torch.randint(
        256,
        (OUTPUTS, INPUTS // of.inputs, of.stored),
        generator=torch.Generator().manual_seed(1),
        dtype=torch.uint8,
    )
    for at in HALVES[kind]:
        stored[..., at : at + 2] = normal(*stored.shape[:2], 1, seed=at).half().view(torch.uint8)
    weights, bias = stored.flatten(1), normal(OUTPUTS)
    x = normal(rows, INPUTS, seed=2).to(dtype)
    expected = F.linear(x.double(), dequantized(weights, kind).double(), bias.double())
    return error_of(kernels.blocks.linear(x, kernels.blocks.pack(weights, kind, bias)), expected)
