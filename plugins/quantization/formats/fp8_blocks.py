"""Reads fp8 as DeepSeek and Qwen publish it, with a scale for each block, or one for each layer.

::

    weight            float8_e4m3fn [out, in]
    weight_scale_inv  float [⌈out / 128⌉, ⌈in / 128⌉]     with weight_block_size = [128, 128]
    weight_scale      float []                            without; Mistral's are called weight_scale_inv

weight = stored · scale, even for ``weight_scale_inv``. Scales of activations are ignored: activations are not
quantized, or with scales of their own.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Tensor, nn

from turnout.core.interfaces.compute import ComputeContext
from turnout.core.interfaces.quantization import Adopter
from turnout.plugins.quantization.formats.fp8_weights import (
    KV_SCALES,
    channel_layer,
    check_numbers,
    take_weight,
)
from turnout.plugins.quantization.formats.layer_tensors import LayerTensors
from turnout.plugins.quantization.formats.settings import Settings
from turnout.plugins.quantization.layers.factory import layer_factory

__all__ = ["Fp8Adopter"]

LARGEST = 4096
"""Outputs or inputs of a block, at most: scales are repeated for a whole one."""


class Fp8Adopter(Adopter):
    divides = True
    kv_scales = KV_SCALES

    def __init__(self, config: Mapping[str, Any]) -> None:
        settings = Settings(config)
        settings.one_of("fmt", ("e4m3",), default="e4m3")
        self.block = read_block(settings, "weight_block_size")

    def adopt(
        self, name: str, tensors: Mapping[str, Tensor], like: nn.Linear, context: ComputeContext
    ) -> nn.Module:
        parts = LayerTensors(name, tensors, like)
        parts.ignore("input_scale", "activation_scale")
        if self.block is None:
            scale = "weight_scale_inv" if parts.has("weight_scale_inv") else "weight_scale"
            return channel_layer(parts, scale, context, activations=True)
        return block_layer(parts, self.block, "weight_scale_inv", context)


def block_layer(
    parts: LayerTensors, block: tuple[int, int], scale_name: str, context: ComputeContext
) -> nn.Module:
    shape = [-(-parts.outputs // block[0]), -(-parts.inputs // block[1])]
    weight = take_weight(parts)
    scale = parts.scale(scale_name, shape)
    bias = parts.bias()
    parts.finish()
    check_numbers(parts.layer, weight)
    return layer_factory(context).fp8_blocks(weight, scale, block, bias)


def read_block(settings: Settings, key: str) -> tuple[int, int] | None:
    match settings.config.get(key):
        case None:
            return None
        case [int(rows), int(columns)] if 0 < rows <= LARGEST and 0 < columns <= LARGEST:
            return rows, columns
    raise settings.wrong(key, f"two integers from 1 to {LARGEST:,} are expected")
