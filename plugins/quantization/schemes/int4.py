"""Weights in 4 bits."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

from pydantic import Field

from turnout.core.errors import ConfigError
from turnout.core.interfaces.quantization import ExportedLayer
from turnout.plugins.quantization.formats.compressed_tensors_writer import exported
from turnout.plugins.quantization.schemes.int8 import Int8WeightOnly
from turnout.plugins.quantization.schemes.scheme import (
    LinearScheme,
    QuantizeEmbedding,
    QuantizeHead,
    is_head,
    undivided,
)

if TYPE_CHECKING:
    from torch import Tensor, nn

    from turnout.core.interfaces.compute import ComputeContext

__all__ = ["Int4WeightOnly"]


class Int4WeightOnly(LinearScheme):
    """W4A16: weights in 4 bits, with a scale and a zero point for each group of inputs.

    Layers whose width is not a multiple of 32, or whose outputs are not one of 16, stay as they are. The head
    and the embedding, if quantized, are in 8 bits.
    """

    name: ClassVar[str] = "int4wo"

    def __init__(
        self,
        group_size: Annotated[
            Literal[32, 64, 128, 256],
            Field(description="Inputs that share a scale; other widths have smaller groups."),
        ] = 128,
        lm_head: QuantizeHead = False,
        embeddings: QuantizeEmbedding = False,
    ) -> None:
        super().__init__(lm_head, embeddings)
        self.group_size = group_size
        self._head = Int8WeightOnly(lm_head)

    def for_layer(self, name: str) -> LinearScheme:
        return self._head if is_head(name) else self

    def wants(self, name: str, linear: nn.Linear) -> bool:
        from turnout.plugins.quantization.layers.int4 import TILE

        fits = linear.in_features % 32 == 0 and linear.out_features % TILE == 0
        return (fits or is_head(name)) and super().wants(name, linear)

    def layer(self, weight: Tensor, bias: Tensor | None, context: ComputeContext) -> nn.Module:
        from turnout.plugins.quantization.layers.factory import layer_factory
        from turnout.plugins.quantization.layers.int4 import TILE
        from turnout.plugins.quantization.schemes.encoding import to_int4

        share = context.share
        group = self.group(weight.shape[1] if share is None else share.whole[1])
        if (
            share is not None
            and share.splits_inputs
            and (share.inputs.start % group or len(share.inputs) % group)
        ):
            weight = share.gathered(weight)  # ranks cut through a group, whose range all of it decides
        else:
            context = undivided(context)
        if len(weight) % TILE:
            raise ConfigError(
                f"quantization {self.name!r}: a rank has {len(weight)} outputs of a layer, and kernels of 4 "
                f"bits take multiples of {TILE}; take fewer ranks, or int8"
            )
        codes, scale, zero = to_int4(weight, group)
        offset = (8 - zero.float()) * scale
        return layer_factory(context).int4(codes, scale, offset, bias, None)

    def export(self, weight: Tensor) -> ExportedLayer:
        import torch

        from turnout.plugins.quantization.formats.packing import pack
        from turnout.plugins.quantization.schemes.encoding import to_int4

        group = self.group(weight.shape[1])
        codes, scale, zero = to_int4(weight, group)
        tensors = {
            "weight_packed": pack(codes, 4),
            "weight_scale": scale,
            "weight_zero_point": pack(zero.t(), 4).t().contiguous(),
            "weight_shape": torch.tensor(weight.shape),
        }
        weights = {"num_bits": 4, "type": "int", "symmetric": False, "strategy": "group", "group_size": group}
        return exported(tensors, "pack-quantized", weights)

    def group(self, width: int) -> int:
        """The largest group that divides a layer of that width."""
        from turnout.plugins.quantization.layers.int4 import GROUPS

        return next(group for group in GROUPS if group <= self.group_size and width % group == 0)
