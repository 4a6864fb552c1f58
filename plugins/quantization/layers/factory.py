"""Builds the layers that compute with quantized weights, on the device that holds the weights.

Only this module chooses by device, and cuts out what a rank has: schemes and formats build layers by
`layer_factory`, for a CPU (`layers/`) or a GPU (`gpu/`).
"""

from __future__ import annotations

from typing import Protocol

import torch
from torch import Tensor, nn

from turnout.core.errors import ConfigError
from turnout.core.interfaces.compute import ComputeContext
from turnout.kernels import cpu_kernels
from turnout.kernels.gpu.choice import triton_problem
from turnout.plugins.quantization.layers.cpu_factory import CpuLayerFactory
from turnout.plugins.quantization.layers.share_factory import ShareFactory

__all__ = ["LayerFactory", "layer_factory"]


class LayerFactory(Protocol):
    """Builds a device's quantized layers. bias: [out]."""

    def int8(self, codes: Tensor, scale: Tensor, bias: Tensor | None) -> nn.Module:
        """W8A8. codes: int8 [out, in]; scale: float32 [out]."""
        ...

    def int8_weights(self, codes: Tensor, scale: Tensor, bias: Tensor | None) -> nn.Module:
        """W8A16, from what `int8` takes."""
        ...

    def int8_groups(
        self, codes: Tensor, scale: Tensor, offset: Tensor, bias: Tensor | None, order: Tensor | None
    ) -> nn.Module:
        """weight = code · scale + offset. codes: uint8 [out, in]; scale, offset: float32 [out, groups].

        order: int64 [in], which input each column of `codes` is for; None: in their own order.
        """
        ...

    def int4(
        self, codes: Tensor, scale: Tensor, offset: Tensor, bias: Tensor | None, order: Tensor | None
    ) -> nn.Module:
        """weight = (code - 8) · scale + offset. codes: uint8 [out, in], 0 to 15; the rest as for 8 bits."""
        ...

    def blocks(self, blocks: Tensor, kind: str, bias: Tensor | None) -> nn.Module:
        """Weights of a GGUF file, activations not quantized. blocks: uint8 [out, bytes] of `kind`."""
        ...

    def fp8(self, codes: Tensor, scale: Tensor, bias: Tensor | None, activations: bool) -> nn.Module:
        """codes: float8_e4m3fn [out, in]; scale: float32 [out]. activations: in fp8, too, if the GPU can."""
        ...

    def fp8_blocks(
        self, codes: Tensor, scale: Tensor, block: tuple[int, int], bias: Tensor | None
    ) -> nn.Module:
        """codes: float8_e4m3fn [out, in]; scale: float32 [⌈out / block[0]⌉, ⌈in / block[1]⌉]."""
        ...


def layer_factory(context: ComputeContext) -> LayerFactory:
    """Returns the factory for the context's device. It is given whole layers, and builds the context's share.

    Raises ConfigError for a GPU without Triton.
    """
    built = _device_factory(context)
    return built if context.share is None else ShareFactory(built, context.share)


def _device_factory(context: ComputeContext) -> LayerFactory:
    device = context.device
    if _on_cpu(device):
        return CpuLayerFactory(cpu_kernels(context.kernels))
    problem = triton_problem(device)
    if problem is not None:
        raise ConfigError(
            f"quantized weights on {device} are multiplied by Triton's kernels, but {problem}; install it, "
            "or leave --quantization out"
        )
    from turnout.plugins.quantization.gpu.factory import GpuLayerFactory

    return GpuLayerFactory()


def _on_cpu(device: torch.device) -> bool:
    return device.type == "cpu"
