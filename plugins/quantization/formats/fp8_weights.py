"""Reads e4m3 weights, for the formats that have them."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from turnout.core.errors import ModelError
from turnout.core.interfaces.compute import ComputeContext
from turnout.plugins.quantization.formats.layer_tensors import LayerTensors
from turnout.plugins.quantization.layers.factory import layer_factory

__all__ = ["KV_SCALES", "channel_layer", "check_numbers", "take_weight"]

KV_SCALES = ("k_scale", "v_scale", "kv_scale", "q_scale", "prob_scale")
"""How the names of scales of an fp8 KV cache end, and of what attention computes with it."""


def channel_layer(
    parts: LayerTensors, scale_name: str, context: ComputeContext, *, activations: bool = False
) -> nn.Module:
    """Build a layer with a scale for each output, or one for all. activations: in fp8 too, if the GPU can."""
    weight = take_weight(parts)
    scale = parts.scale(scale_name, [parts.outputs, 1], [parts.outputs], [1], [])
    bias = parts.bias()
    parts.finish()
    check_numbers(parts.layer, weight)
    each = scale.flatten().expand(parts.outputs).contiguous()
    return layer_factory(context).fp8(weight, each, bias, activations)


def take_weight(parts: LayerTensors) -> Tensor:
    return parts.take("weight", [torch.float8_e4m3fn], [parts.outputs, parts.inputs])


def check_numbers(layer: str, weight: Tensor) -> None:
    """Raises ModelError if weights are NaN, which would be decoded to a number."""
    if bool((weight.view(torch.uint8).bitwise_and(127) == 127).any()):
        raise ModelError(f"{layer}.weight holds NaN; fetch the checkpoint again")
