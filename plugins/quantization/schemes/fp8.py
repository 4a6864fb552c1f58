"""Weights in 8-bit floating point."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar

from turnout.core.interfaces.quantization import Adopter, ExportedLayer
from turnout.plugins.quantization.formats.compressed_tensors_writer import DYNAMIC, exported
from turnout.plugins.quantization.schemes.scheme import LinearScheme, undivided

if TYPE_CHECKING:
    from torch import Tensor, nn

    from turnout.core.interfaces.compute import ComputeContext

__all__ = ["Fp8", "Fp8WeightOnly"]


class Fp8WeightOnly(LinearScheme):
    """Weights in e4m3 with a scale for each output; activations stay as they are.

    On a CPU it saves memory, not time: that knows no such numbers, so they are decoded as they are used.
    The embedding, if quantized, is in int8.
    """

    name: ClassVar[str] = "fp8wo"
    activations: ClassVar[bool] = False
    """Are they in fp8, too, where a card can?"""

    def layer(self, weight: Tensor, bias: Tensor | None, context: ComputeContext) -> nn.Module:
        from turnout.plugins.quantization.layers.factory import layer_factory
        from turnout.plugins.quantization.schemes.encoding import to_e4m3

        encoded = to_e4m3(weight, context.share)
        return layer_factory(undivided(context)).fp8(*encoded, bias, self.activations)

    def export(self, weight: Tensor) -> ExportedLayer:
        from turnout.plugins.quantization.schemes.encoding import to_e4m3

        codes, scale = to_e4m3(weight)
        weights = {"num_bits": 8, "type": "float", "symmetric": True, "strategy": "channel"}
        activations = {**DYNAMIC, "type": "float"} if self.activations else None
        tensors = {"weight": codes, "weight_scale": scale[:, None]}
        return exported(tensors, "float-quantized", weights, activations)


class Fp8(Fp8WeightOnly):
    """Weights in e4m3, activations too where the hardware multiplies such numbers. Elsewhere as `fp8wo`.

    Also reads checkpoints in fp8 with a scale for each block or layer, as DeepSeek and Qwen publish them.
    """

    name: ClassVar[str] = "fp8"
    activations: ClassVar[bool] = True

    def adopter(self, config: Mapping[str, Any]) -> Adopter:
        from turnout.plugins.quantization.formats.fp8_blocks import Fp8Adopter

        return Fp8Adopter(config)
