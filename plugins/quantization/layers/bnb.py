"""Linear layers whose weights bitsandbytes encodes and decodes, on any device that it has operators for."""

from __future__ import annotations

import bitsandbytes  # registers its operators
import torch
from torch import Tensor

from turnout.plugins.quantization.layers.base import DecodedLinear

__all__ = ["FourBitLinear", "OutlierLinear"]

OPERATORS = torch.ops.bitsandbytes
assert bitsandbytes


class FourBitLinear(DecodedLinear):
    """4-bit weights, with a scale for each block of inputs; activations are not quantized."""

    codes: Tensor
    scale: Tensor

    def __init__(self, weight: Tensor, bias: Tensor | None, levels: str, block: int) -> None:
        """weight: [out, in], in a multiple of `block`; levels: ``nf4`` or ``fp4``."""
        super().__init__(weight.shape[1], weight.shape[0], bias)
        codes, scale = OPERATORS.quantize_4bit(weight.detach().contiguous(), block, levels, torch.uint8)
        self._levels, self._block = levels, block
        self.register_buffer("codes", codes.view(self.out_features, -1))
        self.register_buffer("scale", scale.float().view(self.out_features, -1))

    def decode(self, start: int, stop: int) -> Tensor:
        codes, scale = self.codes[start:stop].reshape(-1, 1), self.scale[start:stop].reshape(-1)
        shape = [stop - start, self.in_features]
        decoded: Tensor = OPERATORS.dequantize_4bit(
            codes, scale, self._block, self._levels, shape, torch.float32
        )
        return decoded


class OutlierLinear(DecodedLinear):
    """LLM.int8(): 8-bit weights with a scale for each output, 8-bit activations with one for each token.

    Activations from `threshold` on, the outliers, are not quantized; 0: there are none."""

    codes: Tensor
    scale: Tensor

    def __init__(self, weight: Tensor, bias: Tensor | None, threshold: float) -> None:
        super().__init__(weight.shape[1], weight.shape[0], bias)
        # On a GPU the operator takes float16 alone; the scales are those of the weights that it is given.
        codes, largest, _ = OPERATORS.int8_vectorwise_quant(weight.detach().clone(), 0.0)
        self._threshold = threshold
        self.register_buffer("codes", codes)
        self.register_buffer("scale", largest / 127)

    def multiply(self, x: Tensor) -> Tensor:
        return super().multiply(self._rounded(x.float())).mul_(self.scale)

    def _rounded(self, x: Tensor) -> Tensor:
        """Rounds activations to what 8 bits can hold. Products of integers are exact in float32."""
        outliers = x.abs() >= self._threshold if self._threshold else torch.zeros_like(x, dtype=torch.bool)
        inner = x.masked_fill(outliers, 0)
        unit = inner.abs().amax(1, keepdim=True).clamp_(min=1e-20).div_(127)
        return torch.where(outliers, x, (inner / unit).round_().mul_(unit))

    def decode(self, start: int, stop: int) -> Tensor:
        """Decodes the weights without their scale, which `multiply` applies to the outputs."""
        return self.codes[start:stop].float()
