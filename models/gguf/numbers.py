"""Turns blocks of a GGUF file into floating point numbers."""

from __future__ import annotations

import torch
from torch import Tensor

from turnout.models.gguf.header import BLOCKS

__all__ = ["FLOAT_TYPES", "QuantizedRows", "dequantized"]

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
    return _by_library(rows, kind)


class QuantizedRows:
    """Codes and scales of rows of Q8_0 or Q4_0: 32 numbers a block, of which each is code · scale."""

    def __init__(self, codes: Tensor, scale: Tensor) -> None:
        self.codes = codes
        """int8 [rows, inputs]."""
        self.scale = scale
        """float16 [rows, inputs / 32]."""

    @staticmethod
    def inputs(rows: Tensor, kind: str) -> int:
        """How many numbers a row has. rows: as `of` takes them."""
        return rows.shape[1] // (34 if kind == "q8_0" else 18) * 32

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


def _by_library(rows: Tensor, kind: str) -> Tensor:
    """The other types, a few rows at a time."""
    from gguf import GGMLQuantizationType, dequantize

    number = next(number for number, block in BLOCKS.items() if block[0] == kind)
    _, numbers, size = BLOCKS[number]
    out = torch.empty(len(rows), rows.shape[1] // size * numbers)
    step = max(1, ROWS_AT_ONCE // out.shape[1])
    for start in range(0, len(rows), step):
        part = rows[start : start + step].contiguous().numpy()
        out[start : start + step] = torch.from_numpy(dequantize(part, GGMLQuantizationType(number)))
    return out
