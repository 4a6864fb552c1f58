"""Exchanges root mean square norms of transformers by ours, whose numbers do not depend on the batch."""

from __future__ import annotations

import copy
from typing import Any

import torch
from torch import Tensor, nn

from turnout.models.decoder.layers import RMSNorm

__all__ = ["exchange_norms"]

EPSILON = "variance_epsilon"
ROWS = 3


def exchange_norms(model: nn.Module) -> None:
    """Puts our norms in place, on the same parameters, wherever they compute the same."""
    for name, layer in list(model.named_modules()):
        if type(layer).__name__.endswith("RMSNorm") and [each for each, _ in layer.named_parameters()] == [
            "weight"
        ]:
            made = _like(layer)
            if made is not None:
                model.set_submodule(name, made)


@torch.no_grad()
def _like(layer: nn.Module) -> RMSNorm | None:
    """Returns a norm of ours with the layer's weight; None: it computes something else."""
    weight, eps = layer.weight, getattr(layer, EPSILON, None)
    if not isinstance(weight, nn.Parameter) or weight.dim() != 1 or not isinstance(eps, float):
        return None
    with torch.device("meta"):
        made = RMSNorm(len(weight), eps)
    shared: Any = {"dtype": torch.float32, "device": "cpu"}
    numbers = torch.linspace(0.5, 1.5, len(weight), **shared)
    x = torch.linspace(-1, 2, ROWS * len(weight), **shared).view(ROWS, -1).sin()
    same = torch.allclose(_computed(made, numbers, x), _computed(copy.deepcopy(layer), numbers, x), atol=1e-6)
    made.weight = weight
    return made if same else None


def _computed(layer: nn.Module, weight: Tensor, x: Tensor) -> Tensor:
    layer.weight = nn.Parameter(weight, requires_grad=False)
    out: Tensor = layer(x)
    return out
