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

from turnout.core.errors import ConfigError
from turnout.plugins.kv_backends.storage.tensors import Lane, PoolShape, Scratch, Storage

__all__ = ["Fp8Storage", "Int8Storage", "ScaledStorage"]

SCALE = torch.bfloat16


class ScaledStorage(Storage):
    """Codes of one byte, kept as int8 whatever they mean, and their scales."""

    top: ClassVar[float]
    """The largest code."""

    def __init__(self, shape: PoolShape, device: torch.device, compute: torch.dtype) -> None:
        # Keys and values side by side, since each call costs more than what it does for a few tokens.
        self._kv_heads = shape.kv_heads
        row = (2 * shape.kv_heads, shape.head_dim)
        self._codes = Lane(shape, row, device, torch.int8)
        self._scales = Lane(shape, row[:1], device, SCALE)
        self._computed = Scratch(row, device, compute)

    @property
    def tensors(self) -> Sequence[Tensor]:
        return [self._codes.tensor, self._scales.tensor]

    def write(self, layer: int, slots: Tensor, k: Tensor, v: Tensor) -> None:
        vectors = torch.cat((k, v), dim=1).float()
        scales = _scales(vectors, self.top)
        self._scales.write(layer, slots, scales)
        self._codes.write(layer, slots, self.encode(vectors.div_(scales.float().unsqueeze(-1))))

    def read(self, layer: int, where: Tensor | slice) -> tuple[Tensor, Tensor]:
        codes = self._codes.read(layer, where)
        vectors = self._computed.take(len(codes))
        self.decode(codes, vectors)
        vectors.mul_(self._scales.read(layer, where).unsqueeze(-1))
        return vectors[:, : self._kv_heads], vectors[:, self._kv_heads :]

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

    def __init__(self, shape: PoolShape, device: torch.device, compute: torch.dtype) -> None:
        if compute not in _WIDENING:
            known = ", ".join(str(dtype).removeprefix("torch.") for dtype in _WIDENING)
            raise ConfigError(
                f"KV in fp8 is read as {known}, not as {str(compute).removeprefix('torch.')}, which the "
                "model computes in; choose another dtype for either"
            )
        super().__init__(shape, device, compute)

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
    largest = vectors.abs().amax(-1)
    return largest.div_(top).clamp_min_(torch.finfo(SCALE).tiny).to(SCALE)
