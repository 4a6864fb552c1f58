"""A linear layer's weights, as a GPU's kernels are told of them. Importing it imports no Triton."""

from __future__ import annotations

from typing import NamedTuple

from torch import Tensor

__all__ = ["DeviceWeights"]


class DeviceWeights(NamedTuple):
    """Weights in floating point, in 8 bits with a scale for each output, or in 4 bits in groups of inputs."""

    numbers: Tensor
    """[outputs, inputs], contiguous: floating point of the activations' dtype, or int8. For 4 bits uint8
    [outputs, inputs / 2]: a byte holds inputs j (low half) and j + group / 2 of a group, each raised by 8."""
    scale: Tensor | None
    """float32 [outputs] for int8, [outputs, groups] for 4 bits, contiguous; else None."""
    bias: Tensor | None
    """[outputs]."""
    codes: bool = False
    """Whether activations are rounded to 8 bits, too."""
    floats: bool = False
    """Whether 8 bits are e4m3, in int8."""
    offset: Tensor | None = None
    """float32 [outputs, groups], which is added to each weight of 4 bits; None: nothing is."""
    group: int = 0
    """Inputs in a group, for 4 bits."""

    @property
    def outputs(self) -> int:
        return self.numbers.shape[0]

    @property
    def inputs(self) -> int:
        return self.numbers.shape[1] * (2 if self.group else 1)
