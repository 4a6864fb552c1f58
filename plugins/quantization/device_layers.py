"""The layers that compute with quantized weights, on the device where the weights are.

The only place that knows which: schemes and formats call these functions, and what they return takes the
place of an `nn.Linear` on a CPU (`layers/`) or on a GPU (`gpu/`). Without Triton they raise ConfigError.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from turnout.core.errors import ConfigError
from turnout.kernels import Kernels
from turnout.kernels.gpu.choice import triton_problem
from turnout.plugins.quantization.layers import choice
from turnout.plugins.quantization.layers.fp8 import Fp8BlockLinear, Fp8Linear

if TYPE_CHECKING:
    from turnout.plugins.quantization.gpu.made import GpuLayers

__all__ = [
    "fp8_block_layer",
    "fp8_layer",
    "int4_layer",
    "int8_group_layer",
    "int8_layer",
    "int8_weight_layer",
]


def int8_layer(codes: Tensor, scale: Tensor, bias: Tensor | None, kernels: Kernels | None) -> nn.Module:
    """W8A8. codes: int8 [out, in]; scale: float32 [out]. kernels: compiled ones for a CPU, here and below."""
    if _on_cpu(codes):
        return choice.int8_layer(codes, scale, bias, kernels)
    return _gpu(codes.device).int8(codes, scale, bias)


def int8_weight_layer(
    codes: Tensor, scale: Tensor, bias: Tensor | None, kernels: Kernels | None
) -> nn.Module:
    """W8A16. codes: int8 [out, in]; scale: float32 [out]."""
    if _on_cpu(codes):
        return choice.int8_weight_layer(codes, scale, bias, kernels)
    return _gpu(codes.device).int8_weights(codes, scale, bias)


def int8_group_layer(
    codes: Tensor,
    scale: Tensor,
    offset: Tensor,
    bias: Tensor | None,
    order: Tensor | None,
    kernels: Kernels | None,
) -> nn.Module:
    """weight = code · scale + offset. codes: uint8 [out, in]; scale, offset: float32 [out, groups].

    order: int64 [in], which input each column of `codes` is for; None: in their own order.
    """
    if _on_cpu(codes):
        return choice.int8_group_layer(codes, scale, offset, bias, order, kernels)
    return _gpu(codes.device).int8_groups(codes, scale, offset, bias, order)


def int4_layer(
    codes: Tensor,
    scale: Tensor,
    offset: Tensor,
    bias: Tensor | None,
    order: Tensor | None,
    kernels: Kernels | None,
) -> nn.Module:
    """weight = (code - 8) · scale + offset. codes: uint8 [out, in], 0 to 15; the rest as for 8 bits."""
    if _on_cpu(codes):
        return choice.int4_layer(codes, scale, offset, bias, order, kernels)
    return _gpu(codes.device).int4(codes, scale, offset, bias, order)


def fp8_layer(codes: Tensor, scale: Tensor, bias: Tensor | None, *, activations: bool = False) -> nn.Module:
    """codes: float8_e4m3fn [out, in]; scale: float32 [out]. activations: in fp8 too, where a card can."""
    if _on_cpu(codes):
        return Fp8Linear(codes, scale, bias)
    return _gpu(codes.device).fp8(codes, scale, bias, activations)


def fp8_block_layer(codes: Tensor, scale: Tensor, block: tuple[int, int], bias: Tensor | None) -> nn.Module:
    """codes: float8_e4m3fn [out, in]; scale: float32 [⌈out / block[0]⌉, ⌈in / block[1]⌉]."""
    if _on_cpu(codes):
        return Fp8BlockLinear(codes, scale, block, bias)
    return _gpu(codes.device).fp8_blocks(codes, scale, block, bias)


def _on_cpu(codes: Tensor) -> bool:
    return codes.device.type == "cpu"


def _gpu(device: torch.device) -> type[GpuLayers]:
    problem = triton_problem(device)
    if problem is not None:
        raise ConfigError(
            f"quantized weights on {device} are multiplied by Triton's kernels, but {problem}; install it, "
            "or leave --quantization out"
        )
    from turnout.plugins.quantization.gpu.made import GpuLayers

    return GpuLayers
