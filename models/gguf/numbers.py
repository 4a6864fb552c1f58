"""Turns blocks of a GGUF file into floating point numbers."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch
from torch import Tensor

from turnout.models.gguf.header import BLOCKS

__all__ = ["FLOAT_TYPES", "QuantizedRows", "dequantized", "mxfp4_blocks"]

FLOAT_TYPES = {
    "f32": torch.float32,
    "f16": torch.float16,
    "bf16": torch.bfloat16,
    "f64": torch.float64,
}
ROWS_AT_ONCE = 2**22
"""Numbers that are decoded together: decoding needs several times their memory."""


def dequantized(rows: Tensor, kind: str) -> Tensor:
    """Returns numbers, in their own dtype or float32. rows: uint8 [rows, bytes]."""
    if kind in FLOAT_TYPES:
        return rows.view(FLOAT_TYPES[kind])
    if kind in ("q8_0", "q4_0"):
        return QuantizedRows.of(rows, kind).dequantized()
    if kind in SUPER:
        return SUPER[kind](rows.view(-1, STORED[kind])).view(len(rows), -1)
    return _by_library(rows, kind)


class QuantizedRows:
    """Codes and scales of rows of Q8_0 or Q4_0: 32 numbers a block, of which each is code · scale."""

    def __init__(self, codes: Tensor, scale: Tensor) -> None:
        self.codes = codes
        """int8 [rows, inputs]."""
        self.scale = scale
        """float16 [rows, inputs / 32]."""

    @classmethod
    def of(cls, rows: Tensor, kind: str) -> QuantizedRows:
        """rows: uint8 [rows, bytes], as they are stored: for each block a scale, then codes."""
        blocks = rows.view(len(rows), -1, 34 if kind == "q8_0" else 18)
        scale = blocks[..., :2].contiguous().view(torch.float16).squeeze(-1)
        codes = blocks[..., 2:]
        if kind == "q8_0":
            return cls(codes.contiguous().view(torch.int8).flatten(1), scale)
        halves = torch.cat([codes & 15, codes >> 4], dim=-1)  # numbers 0 to 15, then 16 to 31
        return cls(halves.view(torch.int8).sub_(8).flatten(1), scale)

    def dequantized(self) -> Tensor:
        """Returns float32 [rows, inputs]."""
        wide = self.codes.float().view(len(self.codes), -1, 32)
        return wide.mul_(self.scale.float().unsqueeze(-1)).flatten(1)


def _q4_k(blocks: Tensor) -> Tensor:
    """Returns float32 [blocks, 256]. blocks: uint8 [blocks, 144]."""
    six = blocks[:, 4:16].view(-1, 3, 4)
    first, last, rest = six[:, :2], six[:, :2] >> 6 << 4, six[:, 2:]
    last = last | torch.cat([rest & 15, rest >> 4], dim=1)
    groups = torch.cat([first & 63, last], dim=2).float()  # [blocks, scales and offsets, 8]
    scale, offset = (groups * _halves(blocks[:, :4]).unsqueeze(-1)).unbind(1)
    nibbles = blocks[:, 16:].view(-1, 4, 32)
    codes = torch.stack([nibbles & 15, nibbles >> 4], dim=2).view(-1, 8, 32).float()
    return codes.mul_(scale.unsqueeze(-1)).sub_(offset.unsqueeze(-1)).flatten(1)


def _q6_k(blocks: Tensor) -> Tensor:
    """Returns float32 [blocks, 256]. blocks: uint8 [blocks, 210]."""
    low, high = blocks[:, :128].view(-1, 2, 64), blocks[:, 128:192].view(-1, 2, 1, 32)
    shifts = torch.tensor([0, 2, 4, 6], dtype=torch.uint8, device=blocks.device).view(4, 1)
    low = torch.stack([low & 15, low >> 4], dim=2).view(-1, 2, 4, 32)
    codes = (low | ((high >> shifts) & 3) << 4).view(torch.int8).sub_(32).float()
    scale = blocks[:, 192:208].contiguous().view(torch.int8).float() * _halves(blocks[:, 208:])
    return codes.view(-1, 16, 16).mul_(scale.unsqueeze(-1)).flatten(1)


def mxfp4_blocks(rows: Tensor) -> tuple[Tensor, Tensor]:
    """Returns the blocks and scales of MXFP4 in safetensors' order. rows: uint8 [rows, groups · 17].

    Blocks are uint8 [rows, groups, 16], a byte for two neighbours; scales uint8 [rows, groups].
    """
    stored = rows.view(len(rows), -1, 17)
    codes = torch.cat([stored[..., 1:] & 15, stored[..., 1:] >> 4], dim=-1)  # codes 0 to 15, then 16 to 31
    return codes[..., ::2] | codes[..., 1::2] << 4, stored[..., 0]


def _halves(stored: Tensor) -> Tensor:
    """Returns float32 [blocks, numbers] of float16, as bytes."""
    return stored.contiguous().view(torch.float16).float()


SUPER: Mapping[str, Callable[[Tensor], Tensor]] = {"q4_k": _q4_k, "q6_k": _q6_k}
STORED = {"q4_k": 144, "q6_k": 210}
"""Bytes of a block."""


def _by_library(rows: Tensor, kind: str) -> Tensor:
    """The other types, a few rows at a time."""
    from gguf import GGMLQuantizationType, dequantize

    number = next(number for number, block in BLOCKS.items() if block[0] == kind)
    _, numbers, size = BLOCKS[number]
    out = torch.empty(len(rows), rows.shape[1] // size * numbers, dtype=torch.float32)
    step = max(1, ROWS_AT_ONCE // out.shape[1])
    for start in range(0, len(rows), step):
        part = rows[start : start + step].contiguous().numpy()
        out[start : start + step] = torch.from_numpy(dequantize(part, GGMLQuantizationType(number)))
    return out
