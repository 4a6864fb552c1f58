"""Linear layers with weights in 8-bit floating point, e4m3, on the CPU."""

from __future__ import annotations

import torch
from torch import Tensor

from turnout.plugins.quantization.layers.base import DecodedLinear

__all__ = ["Fp8BlockLinear", "Fp8Linear", "decode_e4m3"]


class Fp8Linear(DecodedLinear):
    """W8A32: e4m3 weights with a scale for each output feature; activations are not quantized."""

    codes: Tensor
    scale: Tensor

    def __init__(self, codes: Tensor, scale: Tensor, bias: Tensor | None) -> None:
        """codes: float8_e4m3fn [out, in]; scale: float32 [out]."""
        super().__init__(codes.shape[1], codes.shape[0], bias)
        self.register_buffer("codes", codes)
        self.register_buffer("scale", scale)

    def multiply(self, x: Tensor) -> Tensor:
        return super().multiply(x).mul_(self.scale)

    def decode(self, start: int, stop: int) -> Tensor:
        """Decodes the weights without their scale, which `multiply` applies to the outputs."""
        return decode_e4m3(self.codes[start:stop])


class Fp8BlockLinear(DecodedLinear):
    """e4m3 weights with a scale for each block of outputs and inputs, as DeepSeek and Qwen publish them."""

    codes: Tensor
    scale: Tensor

    def __init__(self, codes: Tensor, scale: Tensor, block: tuple[int, int], bias: Tensor | None) -> None:
        """codes: float8_e4m3fn [out, in]; scale: float32 [⌈out / block[0]⌉, ⌈in / block[1]⌉]."""
        super().__init__(codes.shape[1], codes.shape[0], bias)
        self.register_buffer("codes", codes)
        self.register_buffer("scale", scale)
        self._block = block

    def decode(self, start: int, stop: int) -> Tensor:
        rows, columns = self._block
        first, last = start // rows, -(-stop // rows)
        scale = self.scale[first:last].repeat_interleave(rows, dim=0)[start - first * rows :][: stop - start]
        wide = scale.repeat_interleave(columns, dim=1)[:, : self.in_features]
        return decode_e4m3(self.codes[start:stop]).mul_(wide)


def decode_e4m3(codes: Tensor) -> Tensor:
    """Converts float8_e4m3fn to float32, ten times as fast as PyTorch on a CPU without such a type.

    Shifted as below, the bits are those of a float16 of 1/256 the value: both formats have subnormal numbers,
    and float16 has the wider exponent. NaN alone is lost: it becomes 480.

    ::

        e4m3     s eeee mmm
        float16  s 0eeee mmm0000000
    """
    bits = codes.view(torch.int8).to(torch.int16)  # the sign is extended, so shifting leaves it in place
    return bits.bitwise_left_shift_(7).bitwise_and_(-0x4001).view(torch.float16).float().mul_(256.0)
