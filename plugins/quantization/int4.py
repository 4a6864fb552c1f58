"""Weights in 4 bits."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Literal

from turnout.plugins.quantization.scheme import LinearScheme, StoredLayer

if TYPE_CHECKING:
    from torch import Tensor, nn

__all__ = ["Int4WeightOnly"]


class Int4WeightOnly(LinearScheme):
    """W4A16: weights in 4 bits, with a scale and a zero point for each group of inputs.

    `group_size`: inputs in a group; a layer whose width is no multiple of it has smaller groups. Layers whose
    width is no multiple of 32, or whose outputs no multiple of 16, stay as they are.
    `lm_head`: quantize the head too; where it is tied to the embedding, that adds memory and saves time.
    """

    name: ClassVar[str] = "int4wo"

    def __init__(self, group_size: Literal[32, 64, 128, 256] = 128, lm_head: bool = False) -> None:
        super().__init__(lm_head)
        self.group_size = group_size

    def wants(self, name: str, linear: nn.Linear) -> bool:
        from turnout.plugins.quantization.layers.int4 import TILE

        fits = linear.in_features % 32 == 0 and linear.out_features % TILE == 0
        return fits and super().wants(name, linear)

    def layer(self, weight: Tensor, bias: Tensor | None) -> nn.Module:
        from turnout.plugins.quantization.device_layers import int4_layer
        from turnout.plugins.quantization.encoding import to_int4

        codes, scale, zero = to_int4(weight, self.group(weight.shape[1]))
        return int4_layer(codes, scale, (8 - zero.float()) * scale, bias)

    def stored(self, weight: Tensor) -> StoredLayer:
        import torch

        from turnout.plugins.quantization.encoding import to_int4
        from turnout.plugins.quantization.formats.bits import pack

        group = self.group(weight.shape[1])
        codes, scale, zero = to_int4(weight, group)
        tensors = {
            "weight_packed": pack(codes, 4),
            "weight_scale": scale,
            "weight_zero_point": pack(zero.t(), 4).t().contiguous(),
            "weight_shape": torch.tensor(weight.shape),
        }
        weights = {"num_bits": 4, "type": "int", "symmetric": False, "strategy": "group", "group_size": group}
        return StoredLayer(tensors, "pack-quantized", weights)

    def group(self, width: int) -> int:
        """The largest group that divides a layer of that width."""
        from turnout.plugins.quantization.layers.int4 import GROUPS

        return next(group for group in GROUPS if group <= self.group_size and width % group == 0)
