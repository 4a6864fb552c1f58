"""Packs codes into 32-bit words, the lowest bits first, and unpacks them."""

from __future__ import annotations

import torch
from torch import Tensor

__all__ = ["pack", "unpack"]


def unpack(words: Tensor, bits: int) -> Tensor:
    """int32 [rows, n] to uint8 [rows, n · 32 / bits]; bits: 4 or 8."""
    # Little-endian bytes are the codes of 8 bits, and pairs of those of 4.
    codes = words.contiguous().view(torch.uint8)
    if bits == 4:
        codes = torch.stack([codes & 15, codes >> 4], dim=-1).flatten(-2)
    return codes


def pack(codes: Tensor, bits: int) -> Tensor:
    """uint8 [rows, n], n a multiple of 32 / bits, to int32 [rows, n · bits / 32]; bits: 4 or 8."""
    if bits == 4:
        codes = codes[:, 0::2] | (codes[:, 1::2] << 4)
    # Flat, because a single row counts as contiguous whatever its stride, which `view` then refuses.
    return codes.contiguous().view(-1).view(torch.int32).view(len(codes), -1)
