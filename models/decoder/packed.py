"""Linear layers whose weights were put into the order in which they are read, and not kept otherwise."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from turnout.kernels import FusedKernels, Kernels
from turnout.kernels.joined import joint_bias
from turnout.kernels.layers import FloatWeights, LinearWeights

__all__ = [
    "Joinable",
    "NarrowEmbedding",
    "NativeLayer",
    "PackedEmbedding",
    "PackedLinear",
    "RowSource",
    "pack",
    "packs",
]


class RowSource(nn.Module):
    """A linear layer of whose weights rows can be had, for an embedding that is tied to it."""

    @abstractmethod
    def rows(self, tokens: Tensor) -> Tensor:
        """tokens: int64 [tokens]; returns [tokens, inputs]."""


class NativeLayer(nn.Module):
    """A linear layer that kernels can compute without asking it, in one call with others."""

    @property
    @abstractmethod
    def native_weights(self) -> LinearWeights | None:
        """None: not this one."""


class Joinable(nn.Module):
    """A layer that a quantizer made, and that can become one with others that read the same input."""

    @abstractmethod
    def join(self, others: Sequence[nn.Module]) -> nn.Module | None:
        """One layer with its outputs, and then those of the others; None where they do not go together."""


def packs(layer: nn.Module) -> bool:
    """Is it a plain linear layer, whose weights are there? One that a quantizer made is not."""
    if not isinstance(layer, nn.Linear) or type(layer).forward is not nn.Linear.forward:
        return False
    return not any(value.is_meta for value in layer.parameters())


def pack(linears: Sequence[nn.Linear], kernels: FusedKernels) -> nn.Module:
    """One layer in place of several that read the same input; their outputs lie side by side.

    A CPU's compute with packed weights; for a GPU they stay as they are.
    """
    bias = joint_bias([linear.bias for linear in linears], [linear.out_features for linear in linears])
    if not isinstance(kernels, Kernels):
        return linears[0] if len(linears) == 1 else _joint(linears, bias)
    return PackedLinear([linear.weight for linear in linears], bias, kernels)


def _joint(linears: Sequence[nn.Linear], bias: Tensor | None) -> nn.Linear:
    outputs = sum(linear.out_features for linear in linears)
    with torch.device("meta"):
        joint = nn.Linear(linears[0].in_features, outputs, bias is not None)
    joint.weight = nn.Parameter(torch.cat([linear.weight for linear in linears]), requires_grad=False)
    if bias is not None:
        joint.bias = nn.Parameter(bias, requires_grad=False)
    return joint


class PackedLinear(RowSource, NativeLayer):
    """In and out as its weights are. Those of float32 that bfloat16 holds exactly are kept so, in half the
    memory."""

    numbers: Tensor
    bias: Tensor | None

    def __init__(self, weights: Sequence[Tensor], bias: Tensor | None, kernels: Kernels) -> None:
        super().__init__()
        self.packed = kernels.pack(weights)
        self.kernels = kernels
        self.register_buffer("numbers", self.packed.numbers)
        self.register_buffer("bias", bias)

    def forward(self, x: Tensor) -> Tensor:
        """x: [rows, inputs]; returns [rows, outputs]."""
        return self.kernels.linear(x, self.packed, self.bias)

    @property
    def native_weights(self) -> LinearWeights:
        return FloatWeights(self.packed, self.bias)

    def rows(self, tokens: Tensor) -> Tensor:
        return self.kernels.rows(self.packed, tokens)


class PackedEmbedding(nn.Module):
    """An embedding that reads the table of the head that it is tied to."""

    def __init__(self, head: RowSource, dtype: torch.dtype) -> None:
        """dtype: what is computed in."""
        super().__init__()
        self._head, self._dtype = (head,), dtype  # no submodule: the head is one already

    def forward(self, tokens: Tensor) -> Tensor:
        return self._head[0].rows(tokens).to(self._dtype)


class NarrowEmbedding(nn.Module):
    """Float32 that bfloat16 holds exactly, kept so, and widened as it is read."""

    table: Tensor

    def __init__(self, table: Tensor) -> None:
        super().__init__()
        self.register_buffer("table", table.detach().bfloat16())

    def forward(self, tokens: Tensor) -> Tensor:
        return self.table[tokens].float()
