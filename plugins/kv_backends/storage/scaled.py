"""Keys and values in 8 bits, with a scale for each token and KV head.

::

    head vector  x [head_dim]      scale = bfloat16(max |x| / top)      code = round(x / scale)

Codes are computed with the scale as rounded to bfloat16, so that the rounding adds no error: it can put the
largest code at top · (1 + 2^-8), which still rounds to `top`. Bfloat16 has the range of float32 in 2 bytes;
float16 would lose vectors below 2^-14 · top. Codes are symmetric, since keys and values centre on 0.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import ClassVar

import torch
from torch import Tensor

from turnout.core.errors import ConfigError
from turnout.kernels.attention.stored import StoredVectors
from turnout.plugins.kv_backends.storage.tensors import (
    Lane,
    PoolShape,
    Scratch,
    Storage,
    both_of,
    stored_of,
)

__all__ = ["Fp8Storage", "Int8Storage", "ScaledStorage"]

SCALE = torch.bfloat16


class _Part:
    """Vectors that lie side by side: their codes, their scales, and memory to widen them in."""

    def __init__(
        self, shape: PoolShape, row: tuple[int, int], device: torch.device, compute: torch.dtype
    ) -> None:
        self.codes = Lane(shape, row, device, torch.int8)
        self.scales = Lane(shape, row[:1], device, SCALE)
        self.computed = Scratch(row, device, compute)


class ScaledStorage(Storage):
    """Stores codes of one byte, as int8 for either format, and their scales."""

    top: ClassVar[float]
    """The largest code."""
    dtype: ClassVar[torch.dtype]
    """What a code is."""

    def __init__(self, shape: PoolShape, device: torch.device, compute: torch.dtype) -> None:
        # Keys and values of one width are side by side: for a few tokens the number of calls counts more than
        # their work.
        self._joint = len(shape.rows) == 2 and shape.key_dim == shape.value_dim
        self._kv_heads, self._value_dim = shape.kv_heads, shape.value_dim
        rows = [(2 * shape.kv_heads, shape.key_dim)] if self._joint else shape.rows
        self._parts = [_Part(shape, row, device, compute) for row in rows]

    @property
    def tensors(self) -> Sequence[Tensor]:
        return [lane.tensor for part in self._parts for lane in (part.codes, part.scales)]

    def write(self, layer: int, slots: Tensor, k: Tensor, v: Tensor | None) -> None:
        stored = stored_of(k, v)
        if self._joint:
            stored = [torch.cat(tuple(stored), dim=1)]
        for part, rows in zip(self._parts, stored, strict=True):
            vectors = rows.float()
            scales = _scales(vectors, self.top)
            part.scales.write(layer, slots, scales)
            part.codes.write(layer, slots, self.encode(vectors / scales.float().unsqueeze(-1)))

    def read(self, layer: int, where: Tensor | slice) -> tuple[Tensor, Tensor]:
        found = [self._read(part, layer, where) for part in self._parts]
        return both_of(self._apart(found), self._value_dim)

    def _read(self, part: _Part, layer: int, where: Tensor | slice) -> Tensor:
        codes = part.codes.read(layer, where)
        vectors = part.computed.take(len(codes))
        self.decode(codes, vectors)
        return vectors.mul_(part.scales.read(layer, where).unsqueeze(-1))

    def stored(self, layer: int) -> tuple[StoredVectors, StoredVectors]:
        codes = self._apart([part.codes.tensor[layer].view(self.dtype) for part in self._parts])
        scales = self._apart([part.scales.tensor[layer] for part in self._parts])
        keys, values = both_of(codes, self._value_dim)
        return StoredVectors(keys, scales[0]), StoredVectors(values, scales[-1])

    def _apart(self, found: list[Tensor]) -> Sequence[Tensor]:
        """Of what each part has: what keys have, and what values have unless they are in the keys."""
        return found[0].tensor_split(2, dim=1) if self._joint else found

    @abstractmethod
    def encode(self, numbers: Tensor) -> Tensor:
        """The int8 codes of float32 numbers between -top and top, apart from rounding, in the same shape."""

    @abstractmethod
    def decode(self, codes: Tensor, out: Tensor) -> None:
        """Writes the exact values of int8 codes into `out`."""


class Int8Storage(ScaledStorage):
    """Integers from -127 to 127, with an error of at most half a scale."""

    top = 127.0
    dtype = torch.int8

    def encode(self, numbers: Tensor) -> Tensor:
        return numbers.round_().to(torch.int8)

    def decode(self, codes: Tensor, out: Tensor) -> None:
        out.copy_(codes)


class Fp8Storage(ScaledStorage):
    """float8_e4m3fn (Micikevicius et al., "FP8 Formats for Deep Learning", 2022): 4 significant bits.

    The error is at most 2^-4 of each number, and 2^-10 scales for the smallest numbers.
    """

    top = 448.0
    dtype = torch.float8_e4m3fn

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
        # Shifts exponent and mantissa into place: torch's own conversion takes ten times as long.
        integer, shift, keep, factor = _WIDENING[out.dtype]
        bits = out.view(integer)
        bits.copy_(codes).bitwise_left_shift_(shift).bitwise_and_(keep)
        out.mul_(factor)


_WIDENING = {
    # dtype: an integer of its size; the left shift of e4m3's fields; a mask of the sign and those fields; the
    # factor that makes up for the difference in exponent bias
    torch.float32: (torch.int32, 20, -(2**31) | 0x7F << 20, 2.0**120),
    torch.bfloat16: (torch.int16, 4, -(2**15) | 0x7F << 4, 2.0**120),
    torch.float16: (torch.int16, 7, -(2**15) | 0x7F << 7, 2.0**8),
}


def _scales(vectors: Tensor, top: float) -> Tensor:
    """The scale of each vector, […, head_dim] to […]; never 0, so that a zero vector can be divided by it."""
    largest = vectors.abs().amax(-1)
    return largest.div_(top).clamp_min_(torch.finfo(SCALE).tiny).to(SCALE)
