"""Layers that are stored quantized, and that a model does not have as they are stored."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

__all__ = ["ReorderedLinear", "row_order", "weight_of"]

PROBED = 8
"""Inputs of the weight by which it is found out what a family changes."""


class ReorderedLinear(nn.Module):
    """Puts out what a linear layer does, in the order that the model has."""

    order: Tensor

    def __init__(self, layer: nn.Module, order: Tensor) -> None:
        """order: int64 [out], which of the layer's outputs each output is."""
        super().__init__()
        self.layer = layer
        self.register_buffer("order", order)

    def forward(self, x: Tensor) -> Tensor:
        """x: [..., inputs]; returns [..., outputs]."""
        out: Tensor = self.layer(x)
        return out[..., self.order]


def row_order(change: Callable[[Tensor], Tensor], outputs: int) -> Tensor | None:
    """Returns the order in which `change` puts rows of a weight, int64 [outputs]; None: it does more."""
    numbered = torch.arange(outputs * PROBED).view(outputs, PROBED)
    try:
        changed = change(numbered)
    except (RuntimeError, IndexError):
        return None
    order = changed[:, 0] // PROBED
    rows = order.sort().values
    if changed.shape != numbered.shape or not torch.equal(rows, torch.arange(outputs)):
        return None
    return order if torch.equal(changed, numbered[order]) else None


@torch.no_grad()
def weight_of(layer: nn.Module, inputs: int, device: torch.device, dtype: torch.dtype) -> Tensor:
    """Returns the weight that a quantized layer without bias computes with, [outputs, inputs]."""
    weight: Tensor = layer(torch.eye(inputs, device=device, dtype=dtype))
    return weight.t().contiguous()
