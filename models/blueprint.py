"""A model as its family builds it, without storage: names, shapes and sizes."""

from __future__ import annotations

import torch
from torch import nn

from turnout.core.interfaces.models import ModelFamily
from turnout.core.types.model_spec import ModelSpec

__all__ = ["blueprint", "count_parameters", "linear_layers"]


def blueprint(family: ModelFamily, spec: ModelSpec) -> nn.Module:
    with torch.device("meta"):
        return family.build(spec)


def linear_layers(module: nn.Module) -> dict[str, nn.Linear]:
    """By their dotted names."""
    return {name: layer for name, layer in module.named_modules() if isinstance(layer, nn.Linear)}


def count_parameters(family: ModelFamily, spec: ModelSpec) -> int:
    """Whatever the model is packed or quantized into."""
    return sum(parameter.numel() for parameter in blueprint(family, spec).parameters())
