"""Joins the tensors of layers that become one: layers that read the same input, with outputs side by side."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

__all__ = ["joint_bias", "together"]


def together(tensors: Sequence[Tensor | None]) -> Tensor | None:
    """Concatenates tensors by outputs. Layers of one kind all have the tensor, or none does: then None."""
    there = [tensor for tensor in tensors if tensor is not None]
    return torch.cat(there) if there else None


def joint_bias(biases: Sequence[Tensor | None], outputs: Sequence[int]) -> Tensor | None:
    """Concatenates biases, with zeros where one is missing; None where all are. outputs: of each layer."""
    some = next((bias for bias in biases if bias is not None), None)
    if some is None:
        return None
    pairs = zip(biases, outputs, strict=True)
    return torch.cat([some.new_zeros(size) if bias is None else bias.detach() for bias, size in pairs])
