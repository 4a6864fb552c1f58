"""Keys and values in 8 bits, with a scale for each token and KV head.

::

    head vector  x [head_dim]      scale = bfloat16(max |x| / top)      code = round(x / scale)

Codes are made with the scale as it was rounded to bfloat16, so that rounding it costs nothing: at most it
puts the largest code at top · (1 + 2^-8), which still rounds to `top`. Bfloat16 has the range of float32 in
2 bytes, where float16 would lose vectors below 2^-14 · top. Symmetric, since keys and values centre on 0.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import ClassVar

import torch
from torch import Tensor

from turnout.plugins.kv_backends.storage import Lane, PoolShape, Scratch, Storage

__all__ = ["Fp8Storage", "Int8Storage", "ScaledStorage"]

SCALE = torch.bfloat16


class ScaledStorage(Storage):
    """Codes of one byte, kept as int8 whatever they mean, and their scales."""

    top: ClassVar[float]
    """The largest code."""

    def __init__(self, shape: PoolShape, device: torch.device, compute: torch.dtype) -> None:
        row = (shape.kv_heads, shape.head_dim)
        self._codes = [Lane(shape, row, device, torch.int8) for _ in "kv"]
        self._scales = [Lane(shape, row[:1], device, SCALE) for _ in "kv"]
        self._computed = [Scratch(row, device, compute) for _ in "kv"]

    @property
    def tensors(self) -> Sequence[Tensor]:
        return [lane.tensor for lane in (*self._codes, *self._scales)]

    def write(self, layer: int, slots: Tensor, k: Tensor, v: Tensor) -> None:
        for codes, scales, vectors in zip(self._codes, self._scales, (k, v), strict=True):
            scale = _scales(vectors, self.top)
            scales.write(layer, slots, scale)
            codes.write(layer, slots, self.encode(vectors.float() / scale.float().unsqueeze(-1)))

    def read(self, layer: int, where: Tensor | slice) -> tuple[Tensor, Tensor]:
        k, v = (self._read(layer, where, side) for side in (0, 1))
        return k, v

    def _read(self, layer: int, where: Tensor | slice, side: int) -> Tensor:
        codes = self._codes[side].read(layer, where)
        scales = self._scales[side].read(layer, where)
        out = self._computed[side].take(len(codes))
        self.decode(codes, out)
        return out.mul_(scales.unsqueeze(-1))

    @abstractmethod
    def encode(self, numbers: Tensor) -> Tensor:
        """Float32 up to `top` in size, but for the rounding of the scale, to int8 codes of the same shape."""

    @abstractmethod
    def decode(self, codes: Tensor, out: Tensor) -> None:
        """The numbers that int8 codes stand for, into `out`, exactly."""


class Int8Storage(ScaledStorage):
    """Whole numbers from -127 to 127: an error of half a scale at most."""

    top = 127.0

    def encode(self, numbers: Tensor) -> Tensor:
        return numbers.round_().to(torch.int8)

    def decode(self, codes: Tensor, out: Tensor) -> None:
        out.copy_(codes)


class Fp8Storage(ScaledStorage):
    """float8_e4m3fn (Micikevicius et al., "FP8 Formats for Deep Learning", 2022): 4 significant bits.

    An error of 2^-4 of each number at most, and of 2^-10 scales for the smallest.
    """

    top = 448.0

    def encode(self, numbers: Tensor) -> Tensor:
        return numbers.to(torch.float8_e4m3fn).view(torch.int8)

    def decode(self, codes: Tensor, out: Tensor) -> None:
        if out.device.type != "cpu":
            out.copy_(codes.view(torch.float8_e4m3fn))
            return
        # By shifting its exponent and mantissa into place: torch's own conversion takes ten times as long.
        integer, shift, keep, factor = _WIDENING[out.dtype]
        bits = out.view(integer)
        bits.copy_(codes).bitwise_left_shift_(shift).bitwise_and_(keep)
        out.mul_(factor)


_WIDENING = {
    # dtype: integer of its size; by how much e4m3's fields lie further left; the sign and those fields;
    # what the difference in exponent bias makes
    torch.float32: (torch.int32, 20, -(2**31) | 0x7F << 20, 2.0**120),
    torch.bfloat16: (torch.int16, 4, -(2**15) | 0x7F << 4, 2.0**120),
    torch.float16: (torch.int16, 7, -(2**15) | 0x7F << 7, 2.0**8),
}


def _scales(vectors: Tensor, top: float) -> Tensor:
    """[…, head_dim] to […]; never 0, so that a vector of zeros can be divided by it."""
    largest = vectors.abs().amax(-1).float()
    return (largest / top).clamp_min_(torch.finfo(SCALE).tiny).to(SCALE)
