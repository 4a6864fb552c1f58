"""What the formats with e4m3 weights share."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from turnout.core.errors import ModelError
from turnout.core.interfaces.compute import ComputeContext
from turnout.plugins.quantization.formats.parts import Parts
from turnout.plugins.quantization.layers.device_layers import layers_on

__all__ = ["channel_layer", "check_numbers", "take_weight"]


def channel_layer(parts: Parts, context: ComputeContext, *, activations: bool = False) -> nn.Module:
    """A scale for each output, or one for all. activations: in fp8 too, where a card can."""
    weight = take_weight(parts)
    scale = parts.scale("weight_scale", [parts.outputs, 1], [parts.outputs], [1], [])
    bias = parts.bias()
    parts.finish()
    check_numbers(parts.layer, weight)
    each = scale.flatten().expand(parts.outputs).contiguous()
    return layers_on(context).fp8(weight, each, bias, activations)


def take_weight(parts: Parts) -> Tensor:
    return parts.take("weight", [torch.float8_e4m3fn], [parts.outputs, parts.inputs])


def check_numbers(layer: str, weight: Tensor) -> None:
    """NaN would be decoded to a number."""
    if bool((weight.view(torch.uint8).bitwise_and(127) == 127).any()):
        raise ModelError(f"{layer}.weight holds what is not a number; fetch the checkpoint again")
