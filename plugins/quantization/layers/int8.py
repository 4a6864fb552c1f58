"""Linear layers with 8-bit weights, and with activations in 8 bits or unquantized, on the CPU."""

from __future__ import annotations

from functools import cache

import torch
from torch import Tensor

from turnout.core.errors import ConfigError
from turnout.models.decoder.packed import LayerCapabilities
from turnout.plugins.quantization.layers.base import DecodedLinear, QuantizedLinear

__all__ = ["Int8GroupLinear", "Int8Linear", "Int8WeightLinear", "activation_bits"]

FEW_ROWS = 8
"""Rows up to which PyTorch's kernel for 8-bit weights is faster than decoding them (AVX2)."""
KERNEL_WIDTH = 32
"""Width of the kernel's vectors: it reads beyond the end of weights whose width is not a multiple of it."""


class Int8Linear(QuantizedLinear):
    """W8A8: weights have a scale for each output feature, activations one for each token.

    oneDNN has a kernel for unsigned activations only, so they are shifted by `_zero`, and what that adds
    to each output is taken off again:  x ≈ s(q - z)  and  w ≈ t·c  give  x·w ≈ s(t·(q·c) - t·z·Σc).
    """

    packed: Tensor
    scale: Tensor
    shift: Tensor

    def __init__(self, codes: Tensor, scale: Tensor, bias: Tensor | None) -> None:
        """codes: int8 [out, in]; scale: float32 [out]."""
        super().__init__(codes.shape[1], codes.shape[0], bias)
        self._levels = 2 ** (activation_bits() - 1) - 1
        self._zero = self._levels + 1
        self.register_buffer("packed", torch.ops.onednn.qlinear_prepack(codes, None))
        self.register_buffer("scale", scale)
        self.register_buffer("shift", codes.sum(dim=1, dtype=torch.int32) * scale * -self._zero)

    @property
    def capabilities(self) -> LayerCapabilities:
        return LayerCapabilities(scaled=self.scaled)

    def scaled(self, x: Tensor, largest: Tensor) -> Tensor:
        """x: [rows, in_features]; largest: [rows]."""
        rows = self._by(x.float(), largest[:, None])
        return (rows if self.bias is None else rows.add_(self.bias)).to(x.dtype)

    def multiply(self, x: Tensor) -> Tensor:
        x = x.float()
        return self._by(x, x.abs().amax(dim=1, keepdim=True))

    def _by(self, x: Tensor, largest: Tensor) -> Tensor:
        scale = largest.clamp(min=1e-20).div_(self._levels)
        q = (x / scale).round_().add_(self._zero).to(torch.uint8)
        return _product(q, self.packed, self.scale, self.shift).mul_(scale)


def _product(q: Tensor, packed: Tensor, scale: Tensor, shift: Tensor) -> Tensor:
    """Returns q · codes · scale + shift, float32 [rows, out]. q: uint8 [rows, in]."""
    out: Tensor = torch.ops.onednn.qlinear_pointwise(
        q, 1.0, 0, packed, scale, None, shift, 1.0, 0, torch.float32, "none", [], ""
    )
    return out


@cache
def activation_bits() -> int:
    """Returns the bits of activations with which the kernel is exact: 8, else 7.

    Without VNNI instructions, sums of two products are kept in 16 bits and cut off there: 2 · 255 · 127 does
    not fit, 2 · 127 · 127 does. Raises ConfigError if neither is exact.
    """
    codes = torch.full((32, 64), 127, dtype=torch.int8)
    packed = torch.ops.onednn.qlinear_prepack(codes, None)
    for bits in (8, 7):
        q = torch.full((4, 64), 2**bits - 1, dtype=torch.uint8)
        scale = torch.ones(32, dtype=torch.float32)
        product = _product(q, packed, scale, torch.zeros_like(scale))
        if bool((product == (2**bits - 1) * 127 * 64).all()):
            return bits
    raise ConfigError("this CPU's kernel for 8-bit products is not exact; use --quantization int8wo")


class Int8WeightLinear(DecodedLinear):
    """W8A16: weights with a scale for each output feature; activations are rounded to bfloat16."""

    codes: Tensor
    scale: Tensor
    ones: Tensor

    def __init__(self, codes: Tensor, scale: Tensor, bias: Tensor | None) -> None:
        """codes: int8 [out, in]; scale: float32 [out]."""
        super().__init__(codes.shape[1], codes.shape[0], bias)
        self.register_buffer("codes", codes)
        self.register_buffer("scale", scale)
        self.register_buffer("ones", torch.ones(len(codes), dtype=torch.bfloat16))
        self._few = FEW_ROWS if self.in_features % KERNEL_WIDTH == 0 else 0

    def multiply(self, x: Tensor) -> Tensor:
        # Rounded alike on both ways, so that results do not depend on how many rows there are.
        x = x.bfloat16()
        if len(x) <= self._few:
            return torch._weight_int8pack_mm(x, self.codes, self.ones).float().mul_(self.scale)
        return super().multiply(x).bfloat16().float().mul_(self.scale)

    def decode(self, start: int, stop: int) -> Tensor:
        """Decodes the weights without their scale, which `multiply` applies to the outputs."""
        return self.codes[start:stop].float()


class Int8GroupLinear(DecodedLinear):
    """W8A32: weight = code · scale + offset, for each output feature and group of inputs."""

    codes: Tensor
    scale: Tensor
    offset: Tensor
    order: Tensor | None

    def __init__(
        self, codes: Tensor, scale: Tensor, offset: Tensor, bias: Tensor | None, order: Tensor | None = None
    ) -> None:
        """codes: uint8 [out, in]; scale, offset: float32 [out, groups].

        order: int64 [in], the input that each column of `codes` is for; None: column i is for input i.
        """
        super().__init__(codes.shape[1], codes.shape[0], bias)
        self.register_buffer("codes", codes)
        self.register_buffer("scale", scale)
        self.register_buffer("offset", offset)
        self.register_buffer("order", order)

    def multiply(self, x: Tensor) -> Tensor:
        return super().multiply(x if self.order is None else x[:, self.order])

    def decode(self, start: int, stop: int) -> Tensor:
        rows = self.codes[start:stop].float().view(stop - start, self.scale.shape[1], -1)
        rows = rows.mul_(self.scale[start:stop, :, None]).add_(self.offset[start:stop, :, None])
        return rows.flatten(1)
