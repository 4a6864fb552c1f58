"""A family's model on the meta device: names, shapes and sizes without storage."""

from __future__ import annotations

import torch
from torch import nn

from turnout.core.interfaces.models import ModelFamily
from turnout.core.types.model_spec import ModelSpec
from turnout.models.decoder.layers import is_linear

__all__ = ["count_parameters", "linear_layers", "meta_model"]


def meta_model(family: ModelFamily, spec: ModelSpec) -> nn.Module:
    """Build the model without storage."""
    with torch.device("meta"):
        return family.build(spec)


def linear_layers(module: nn.Module) -> dict[str, nn.Linear]:
    """The linear layers of a model, by their dotted names."""
    return {name: layer for name, layer in module.named_modules() if is_linear(layer)}


def count_parameters(family: ModelFamily, spec: ModelSpec) -> int:
    """The number of the model's parameters, before it is packed or quantized."""
    return sum(parameter.numel() for parameter in meta_model(family, spec).parameters())
