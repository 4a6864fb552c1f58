"""The tensors that a checkpoint has for one layer; each error names the tensor."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor, nn

from turnout.core.errors import ModelError

__all__ = ["FLOATS", "LayerTensors"]

FLOATS = (torch.float32, torch.float16, torch.bfloat16)


class LayerTensors:
    """A layer's tensors by the last part of their names, taken one by one and checked."""

    def __init__(self, layer: str, tensors: Mapping[str, Tensor], like: nn.Linear) -> None:
        self.layer = layer
        self.outputs, self.inputs = like.out_features, like.in_features
        self._tensors = dict(tensors)
        self._bias = like.bias is not None

    def has(self, name: str) -> bool:
        return name in self._tensors

    def groups(self, size: int) -> int:
        """The number of groups of `size` inputs; 0 or less: one. Raises ModelError unless all are equal."""
        if size <= 0 or size >= self.inputs:
            return 1
        if self.inputs % size:
            raise ModelError(
                f"{self.layer} has {self.inputs} inputs in groups of {size}, of which the last is smaller; "
                "only groups that are all as large are supported"
            )
        return self.inputs // size

    def take(self, name: str, dtypes: Sequence[torch.dtype], shape: Sequence[int]) -> Tensor:
        """Take a tensor. Raises ModelError unless it is there, with one of these dtypes and this shape."""
        tensor = self._tensors.pop(name, None)
        if tensor is None:
            raise ModelError(
                f"{self.layer}.{name} is missing; the checkpoint is damaged, or its quantization_config does "
                "not describe it"
            )
        self._check(name, tensor, dtypes, shape)
        return tensor

    def scale(self, name: str, *shapes: Sequence[int]) -> Tensor:
        """Take a tensor as float32. Raises ModelError unless it has one of these shapes and is finite."""
        shape = next((shape for shape in shapes if self._shape(name) == list(shape)), shapes[0])
        return self._finite(name, self.take(name, FLOATS, shape).float())

    def bias(self) -> Tensor | None:
        """Take the bias. Some writers add one of zeros to layers that have none."""
        if self._bias:
            return self._finite("bias", self.take("bias", FLOATS, [self.outputs]))
        bias = self._tensors.pop("bias", None)
        if bias is not None and bool(bias.any()):
            raise ModelError(f"{self.layer}.bias is there, but config.json gives this layer none")
        return None

    def ignore(self, *names: str) -> None:
        for name in names:
            self._tensors.pop(name, None)

    def finish(self) -> None:
        """Raises ModelError if a tensor was neither taken nor ignored."""
        for name, tensor in self._tensors.items():
            raise ModelError(
                f"{self.layer}.{name}, {tensor.dtype} {list(tensor.shape)}, has no place in a layer that is "
                "quantized as quantization_config says"
            )

    def _finite(self, name: str, numbers: Tensor) -> Tensor:
        if not bool(numbers.isfinite().all()):
            raise ModelError(f"{self.layer}.{name} holds numbers that are not finite; fetch it again")
        return numbers

    def _shape(self, name: str) -> list[int] | None:
        return list(self._tensors[name].shape) if name in self._tensors else None

    def _check(self, name: str, tensor: Tensor, dtypes: Sequence[torch.dtype], shape: Sequence[int]) -> None:
        if list(tensor.shape) != list(shape):
            raise ModelError(
                f"{self.layer}.{name} has shape {list(tensor.shape)}, for {self.outputs} outputs and "
                f"{self.inputs} inputs {list(shape)} is expected"
            )
        if tensor.dtype not in dtypes:
            expected = " or ".join(str(dtype).removeprefix("torch.") for dtype in dtypes)
            raise ModelError(
                f"{self.layer}.{name} is {str(tensor.dtype).removeprefix('torch.')}, {expected} is expected"
            )
