"""What layers give in float64, and how far off others are."""

from __future__ import annotations

from torch import Tensor, nn


def exact(layer: nn.Linear, x: Tensor) -> Tensor:
    """[rows, outputs] in float64."""
    out = x.double() @ layer.weight.double().t()
    return out if layer.bias is None else out + layer.bias.double()


def relative_error(found: Tensor, expected: Tensor) -> float:
    return float((found.double() - expected).norm() / expected.norm())
