"""Weights and activations in 8 bits."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from turnout.core.interfaces.quantization import ExportedLayer
from turnout.plugins.quantization.formats.compressed_tensors_writer import DYNAMIC, exported
from turnout.plugins.quantization.schemes.scheme import LinearScheme, undivided

if TYPE_CHECKING:
    from torch import Tensor, nn

    from turnout.core.interfaces.compute import ComputeContext

__all__ = ["Int8", "Int8WeightOnly"]

CHANNELS = {"num_bits": 8, "type": "int", "symmetric": True, "strategy": "channel"}
"""Weights with a scale for each output."""


class Int8(LinearScheme):
    """W8A8: weights with a scale for each output, activations with one for each token, as they come.

    Products are of integers: fast wherever several tokens are computed at once. Without compiled kernels,
    on a CPU without VNNI instructions, activations have 7 bits, because sums would overflow with 8.
    """

    name: ClassVar[str] = "int8"

    def layer(self, weight: Tensor, bias: Tensor | None, context: ComputeContext) -> nn.Module:
        from turnout.kernels import cpu_kernels
        from turnout.plugins.quantization.layers.factory import layer_factory
        from turnout.plugins.quantization.schemes.encoding import to_int8

        encoded = to_int8(weight, cpu_kernels(context.kernels), context.share)
        return layer_factory(undivided(context)).int8(*encoded, bias)

    def export(self, weight: Tensor) -> ExportedLayer:
        from turnout.plugins.quantization.schemes.encoding import to_int8

        codes, scale = to_int8(weight)
        tensors = {"weight": codes, "weight_scale": scale[:, None]}
        return exported(tensors, "int-quantized", CHANNELS, {**DYNAMIC, "type": "int"})


class Int8WeightOnly(LinearScheme):
    """W8A16: weights in 8 bits with a scale for each output; activations in 16.

    Answers hardly change. By compiled kernels as fast as `int8` on a CPU without VNNI instructions.
    """

    name: ClassVar[str] = "int8wo"

    def layer(self, weight: Tensor, bias: Tensor | None, context: ComputeContext) -> nn.Module:
        from turnout.kernels import cpu_kernels
        from turnout.plugins.quantization.layers.factory import layer_factory
        from turnout.plugins.quantization.schemes.encoding import to_int8

        encoded = to_int8(weight, cpu_kernels(context.kernels), context.share)
        return layer_factory(undivided(context)).int8_weights(*encoded, bias)

    def export(self, weight: Tensor) -> ExportedLayer:
        import torch

        from turnout.plugins.quantization.formats.packing import pack
        from turnout.plugins.quantization.schemes.encoding import to_int8

        codes, scale = to_int8(weight)
        raised = (codes.to(torch.int16) + 128).to(torch.uint8)
        tensors = {
            "weight_packed": pack(raised, 8),
            "weight_scale": scale[:, None],
            "weight_shape": torch.tensor(weight.shape),
        }
        return exported(tensors, "pack-quantized", CHANNELS)
