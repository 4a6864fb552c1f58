"""A linear layer with 4-bit weights in groups of inputs, on the CPU; activations are not quantized."""

from __future__ import annotations

from functools import cache

import torch
from torch import Tensor

from turnout.plugins.quantization.layers.base import DecodedLinear

__all__ = ["GROUPS", "TILE", "Int4Linear"]

GROUPS = (256, 128, 64, 32)
"""Sizes of a group, the inputs that share a scale and a zero point, that PyTorch's kernel supports."""
TILE = 16
"""The number of output features must be a multiple of this."""
BLOCK = 32
"""Output features that the kernel packs together."""
FEW_ROWS = 32
"""Rows up to which the kernel is faster than decoding the weights (AVX2)."""


class Int4Linear(DecodedLinear):
    """W4A16: weight = (code - 8) · scale + offset, for each group; activations are rounded to bfloat16.

    The codes are packed for the kernel. On AVX2 a byte holds rows i and i + 16 of 32:

    ::

        codes  uint8 [out / 32, in, 16]    low half: row i, high half: row i + 16
    """

    codes: Tensor
    groups: Tensor
    order: Tensor | None

    def __init__(
        self,
        codes: Tensor,
        scale: Tensor,
        offset: Tensor,
        bias: Tensor | None,
        order: Tensor | None = None,
    ) -> None:
        """codes: uint8 [out, in], 0 to 15; scale, offset: float32 [out, in / group].

        order: int64 [in], the input that each column of `codes` is for; None: column i is for input i.
        """
        super().__init__(codes.shape[1], codes.shape[0], bias)
        self.group = self.in_features // scale.shape[1]
        packed = torch._convert_weight_to_int4pack_for_cpu(codes.to(torch.int32), 1)
        self.register_buffer("codes", packed)
        self.register_buffer("groups", torch.stack([scale.t(), offset.t()], dim=-1).bfloat16().contiguous())
        self.register_buffer("order", order)
        self._few = FEW_ROWS if self.out_features % BLOCK == 0 and _layout_is_known() else None

    def multiply(self, x: Tensor) -> Tensor:
        x = x.bfloat16()
        if self.order is not None:
            x = x[:, self.order]
        if self._few is not None and len(x) > self._few:
            return super().multiply(x).bfloat16().float()
        return torch._weight_int4pack_mm_for_cpu(x.contiguous(), self.codes, self.group, self.groups).float()

    def decode(self, start: int, stop: int) -> Tensor:
        blocks = self.codes.view(-1, self.in_features, BLOCK // 2)[start // BLOCK : stop // BLOCK]
        codes = _unpack(blocks).view(stop - start, -1, self.group).float()
        scale, offset = self.groups[:, start:stop].float().unbind(-1)
        return codes.mul_(scale.t().unsqueeze(-1)).add_((offset - 8 * scale).t().unsqueeze(-1)).flatten(1)


def _unpack(blocks: Tensor) -> Tensor:
    """Unpacks uint8 [blocks, in, 16] to uint8 [rows, in]."""
    return torch.cat([blocks & 15, blocks >> 4], dim=-1).transpose(1, 2).flatten(0, 1)


@cache
def _layout_is_known() -> bool:
    """Whether PyTorch packs codes on this CPU as on AVX2; another layout only its kernel can read."""
    codes = torch.arange(2 * BLOCK * BLOCK).mul_(7).remainder_(16).view(2 * BLOCK, BLOCK)
    packed = torch._convert_weight_to_int4pack_for_cpu(codes.to(torch.int32), 1)
    return torch.equal(_unpack(packed.view(-1, BLOCK, BLOCK // 2)).long(), codes)
