"""What layers that become one have side by side. Layers that read the same input can."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

__all__ = ["joint_bias", "together"]


def together(tensors: Sequence[Tensor | None]) -> Tensor | None:
    """One after the other, by outputs. Of layers of one kind: all have one, or none."""
    there = [tensor for tensor in tensors if tensor is not None]
    return torch.cat(there) if there else None


def joint_bias(biases: Sequence[Tensor | None], outputs: Sequence[int]) -> Tensor | None:
    """As `together`, with zeros where only some have one. outputs: of each layer."""
    some = next((bias for bias in biases if bias is not None), None)
    if some is None:
        return None
    pairs = zip(biases, outputs, strict=True)
    return torch.cat([some.new_zeros(size) if bias is None else bias.detach() for bias, size in pairs])
