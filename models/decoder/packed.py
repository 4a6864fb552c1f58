"""Packed linear layers: their weights are kept in the order in which kernels read them, and in no other."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from turnout.core.interfaces.collective import Collective
from turnout.core.interfaces.compute import FusedKernels
from turnout.kernels import CpuKernels, cpu_kernels
from turnout.kernels.gpu.weights import DeviceWeights
from turnout.kernels.integers import joint_bias
from turnout.kernels.linears import FloatWeights, LinearWeights
from turnout.models.decoder.layers import is_linear

__all__ = [
    "LayerCapabilities",
    "NarrowEmbedding",
    "PackedEmbedding",
    "PackedLinear",
    "layer_capabilities",
    "pack",
    "packs",
]


@dataclass(frozen=True)
class LayerCapabilities:
    """What a linear layer can do beyond computing: its attribute ``capabilities``, if it has one.

    It is read while a model is loaded, so a property may build it. None: the layer cannot do that.
    """

    join: Callable[[Sequence[nn.Module]], nn.Module | None] | None = None
    """Given other layers that read the same input, returns one layer with this layer's outputs and then
    theirs; or None, where they do not go together."""
    rows: Callable[[Tensor], Tensor] | None = None
    """Looks up rows of its weights, for an embedding tied to it: int64 [tokens] to [tokens, inputs]."""
    scaled: Callable[[Tensor, Tensor], Tensor] | None = None
    """Computes a rank's share of a layer that rounds each row by its largest number: given [rows, inputs],
    and the largest magnitudes of whole rows, float32 [rows], returns [rows, outputs]."""
    exact: Callable[[Collective], nn.Module | None] | None = None
    """Returns the layer in place of this share of it and of all that adds shares up, with the bits of one
    device; None: this one cannot. All ranks call it at once."""
    native_weights: LinearWeights | None = None
    """What the compiled kernels of a CPU need to compute the layer themselves, in one call with others."""
    native_group: int | None = None
    """The native group of ranks that each have a share of the layer's inputs: what `native_weights` put out
    has to be added up over them; None: it is the layer's output."""
    device_weights: DeviceWeights | None = None
    """What the kernels of a GPU need to compute the layer together with others."""


_NONE = LayerCapabilities()


def layer_capabilities(layer: nn.Module) -> LayerCapabilities:
    """Returns what `layer` declares; a layer that declares nothing can do nothing of it."""
    declared: LayerCapabilities = getattr(layer, "capabilities", _NONE)
    return declared


def packs(layer: nn.Module) -> bool:
    """Says whether `layer` is a plain linear layer, not one that a quantizer made, and has its weights.

    One without inputs or outputs, as of shared experts that a config has none of, is left to PyTorch.
    """
    return is_linear(layer) and not any(value.is_meta or not value.numel() for value in layer.parameters())


def pack(linears: Sequence[nn.Linear], kernels: FusedKernels) -> nn.Module:
    """Returns one layer in place of several that read the same input; their outputs lie side by side.

    For a CPU its weights are packed; for a GPU they are joined as they are.
    """
    bias = joint_bias([linear.bias for linear in linears], [linear.out_features for linear in linears])
    compiled = cpu_kernels(kernels)
    if compiled is None:
        return linears[0] if len(linears) == 1 else _joint(linears, bias)
    return PackedLinear([linear.weight for linear in linears], bias, compiled)


def _joint(linears: Sequence[nn.Linear], bias: Tensor | None) -> nn.Linear:
    outputs = sum(linear.out_features for linear in linears)
    with torch.device("meta"):
        joint = nn.Linear(linears[0].in_features, outputs, bias is not None)
    joint.weight = nn.Parameter(torch.cat([linear.weight for linear in linears]), requires_grad=False)
    if bias is not None:
        joint.bias = nn.Parameter(bias, requires_grad=False)
    return joint


class PackedLinear(nn.Module):
    """A linear layer with packed weights, whose inputs and outputs have the weights' dtype.

    Weights of float32 that bfloat16 holds exactly are kept in bfloat16, in half the memory.
    """

    numbers: Tensor
    bias: Tensor | None

    def __init__(self, weights: Sequence[Tensor], bias: Tensor | None, kernels: CpuKernels) -> None:
        super().__init__()
        self.packed = kernels.pack(weights)
        self.kernels = kernels
        self.register_buffer("numbers", self.packed.numbers)
        self.register_buffer("bias", bias)

    def forward(self, x: Tensor) -> Tensor:
        """x: [rows, inputs]; returns [rows, outputs]."""
        return self.kernels.linear(x, self.packed, self.bias)

    @property
    def capabilities(self) -> LayerCapabilities:
        return LayerCapabilities(rows=self.rows, native_weights=FloatWeights(self.packed, self.bias))

    def rows(self, tokens: Tensor) -> Tensor:
        """tokens: int64 [tokens]; returns those rows of the weights, [tokens, inputs]."""
        return self.kernels.rows(self.packed, tokens)


class PackedEmbedding(nn.Module):
    """An embedding that reads the weights of the head that it is tied to."""

    def __init__(self, rows: Callable[[Tensor], Tensor], dtype: torch.dtype) -> None:
        """rows: as the head's `LayerCapabilities` have it; dtype: of activations."""
        super().__init__()
        self._rows, self._dtype = rows, dtype

    def forward(self, tokens: Tensor) -> Tensor:
        return self._rows(tokens).to(self._dtype)


class NarrowEmbedding(nn.Module):
    """An embedding of float32 that bfloat16 holds exactly: kept in bfloat16, widened as it is read."""

    table: Tensor

    def __init__(self, table: Tensor) -> None:
        super().__init__()
        self.register_buffer("table", table.detach().bfloat16())

    def forward(self, tokens: Tensor) -> Tensor:
        return self.table[tokens].float()
