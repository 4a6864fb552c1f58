"""Linear layers with few bits on a GPU. Activations as they are, or in the weights' 8 bits too."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Literal

import torch
from torch import Tensor, nn

from turnout.kernels.gpu.rows import MOST_OUTPUTS, multiply_codes_row, multiply_nibbles_row
from turnout.kernels.gpu.weights import DeviceWeights
from turnout.kernels.integers import joint_bias
from turnout.models.decoder.packed import LayerCapabilities
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

    @property
    def capabilities(self) -> LayerCapabilities:
        return LayerCapabilities(join=self.join, device_weights=self.device_weights)

    @property
    def device_weights(self) -> DeviceWeights | None:
        """What kernels need that compute several layers; None: they cannot compute this one."""
        return None

    def join(self, others: Sequence[nn.Module]) -> nn.Module | None:
        layers = [self, *(layer for layer in others if isinstance(layer, GpuLinear))]
        kinds = {layer.join_key for layer in layers}
        if len(layers) <= len(others) or len(kinds) > 1 or None in kinds:
            return None
        return self._joined(layers)

    @property
    @abstractmethod
    def join_key(self) -> tuple[object, ...] | None:
        """Equal for layers that may be joined; None: it is not joined with any."""

    @abstractmethod
    def _joined(self, layers: Sequence[GpuLinear]) -> GpuLinear:
        """One layer with the outputs of `layers`, which are of this one's join_key."""

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
        if len(x) == 1 and self._by_words:
            return multiply_nibbles_row(x, self.codes, self.scale, self.offset, self.bias, self._group)
        return multiply(x, self._weights, self.bias)

    @property
    def _by_words(self) -> bool:
        """Whether words of 16 bytes are of one group each."""
        return self._kind == "int4" and self._group >= 32 and self._group & (self._group - 1) == 0

    @property
    def _weights(self) -> Weights:
        return Weights(self._kind, self.codes, self.scale, self.offset, self._group)

    @property
    def device_weights(self) -> DeviceWeights | None:
        if self.order is not None:
            return None
        if self._kind == "int4":
            return DeviceWeights(self.codes, self.scale, self.bias, offset=self.offset, group=self._group)
        if self._group or self.offset is not None:
            return None
        return DeviceWeights(self.codes, self.scale[:, 0], self.bias, floats=self._kind == "fp8")

    @property
    def join_key(self) -> tuple[object, ...] | None:
        if self.order is not None:
            return None
        return type(self), self._kind, self._group, self.scale.shape[1:], self.offset is None

    def _joined(self, layers: Sequence[GpuLinear]) -> GpuLinear:
        offset = None if self.offset is None else _joint(layers, "offset")
        weights = self._weights._replace(codes=_joint(layers, "codes"), scale=_joint(layers, "scale"))
        return WeightOnlyLinear(weights._replace(offset=offset), _joint_bias(layers))


class CodesLinear(GpuLinear):
    """Weights with a scale for each output, activations one for each token: products of 8 bits."""

    def __init__(
        self, kind: Literal["int8", "fp8"], codes: Tensor, scale: Tensor, bias: Tensor | None
    ) -> None:
        """codes: int8 [out, in], for fp8 holding e4m3; scale: float32 [out]."""
        super().__init__(codes.shape[1], codes, scale, bias)
        self._kind: Literal["int8", "fp8"] = kind

    def multiply(self, x: Tensor) -> Tensor:
        if len(x) == 1 and self.in_features % 16 == 0 and self.out_features <= MOST_OUTPUTS[self._kind]:
            floats = self._kind == "fp8"
            return multiply_codes_row(x, self.codes, self.scale, self.bias, floats=floats)
        codes, scale = quantize(x, self._kind)
        return multiply_codes(codes, scale, Weights(self._kind, self.codes, self.scale), self.bias, x.dtype)

    @property
    def device_weights(self) -> DeviceWeights | None:
        return DeviceWeights(self.codes, self.scale[:, 0], self.bias, codes=True, floats=self._kind == "fp8")

    @property
    def join_key(self) -> tuple[object, ...]:
        return type(self), self._kind

    def _joined(self, layers: Sequence[GpuLinear]) -> GpuLinear:
        return CodesLinear(self._kind, _joint(layers, "codes"), _joint(layers, "scale"), _joint_bias(layers))


def _joint(layers: Sequence[GpuLinear], name: str) -> Tensor:
    return torch.cat([getattr(layer, name) for layer in layers])


def _joint_bias(layers: Sequence[GpuLinear]) -> Tensor | None:
    return joint_bias([layer.bias for layer in layers], [layer.out_features for layer in layers])
