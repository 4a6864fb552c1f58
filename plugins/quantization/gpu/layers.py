"""Linear layers with few bits on a GPU. Activations as they are, or in the weights' 8 bits too."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Literal

from torch import Tensor, nn

from turnout.plugins.quantization.gpu.products import Kind, Weights, multiply, multiply_codes, quantize

__all__ = ["CodesLinear", "WeightOnlyLinear"]


class GpuLinear(nn.Module, ABC):
    """Takes the place of an `nn.Linear`. Weights are buffers: nothing here is trained."""

    codes: Tensor
    scale: Tensor
    bias: Tensor | None

    def __init__(self, inputs: int, codes: Tensor, scale: Tensor, bias: Tensor | None) -> None:
        super().__init__()
        self.in_features, self.out_features = inputs, codes.shape[0]
        self.register_buffer("codes", codes.contiguous())
        self.register_buffer("scale", scale.view(len(codes), -1).contiguous())
        self.register_buffer("bias", None if bias is None else bias.detach())

    def forward(self, x: Tensor) -> Tensor:
        """x: [..., in_features]; returns [..., out_features] in x's dtype."""
        rows = x.reshape(-1, self.in_features)
        return self.multiply(rows).view(*x.shape[:-1], self.out_features)

    @abstractmethod
    def multiply(self, x: Tensor) -> Tensor:
        """x: [rows, in_features]; returns [rows, out_features] in x's dtype, with the bias."""

    def extra_repr(self) -> str:
        return f"in_features={self.in_features}, out_features={self.out_features}"


class WeightOnlyLinear(GpuLinear):
    """weight = code · scale + offset, for each output and group of inputs; activations as they are."""

    offset: Tensor | None
    order: Tensor | None

    def __init__(
        self,
        weights: Weights,
        bias: Tensor | None,
        order: Tensor | None = None,
    ) -> None:
        """order: int64 [in], which input each column of the codes is for; None: in their own order."""
        super().__init__(weights.inputs, weights.codes, weights.scale, bias)
        offset = weights.offset
        self.register_buffer("offset", None if offset is None else offset.contiguous())
        self.register_buffer("order", order)
        self._kind: Kind = weights.kind
        self._group = weights.group

    def multiply(self, x: Tensor) -> Tensor:
        if self.order is not None:
            x = x[:, self.order]
        return multiply(x, Weights(self._kind, self.codes, self.scale, self.offset, self._group), self.bias)


class CodesLinear(GpuLinear):
    """Weights with a scale for each output, activations one for each token: products of 8 bits."""

    def __init__(
        self, kind: Literal["int8", "fp8"], codes: Tensor, scale: Tensor, bias: Tensor | None
    ) -> None:
        """codes: int8 [out, in], for fp8 holding e4m3; scale: float32 [out]."""
        super().__init__(codes.shape[1], codes, scale, bias)
        self._kind: Literal["int8", "fp8"] = kind

    def multiply(self, x: Tensor) -> Tensor:
        codes, scale = quantize(x, self._kind)
        return multiply_codes(codes, scale, Weights(self._kind, self.codes, self.scale), self.bias, x.dtype)
