"""A model's parameters, each with all its names."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import nn

__all__ = ["ParameterSlot", "parameter_slots"]


@dataclass(frozen=True)
class ParameterSlot:
    """A parameter's shape and all its dotted names: tied layers share a parameter.

    It holds names rather than layers, because a layer that a quantizer replaces must be freed.
    """

    names: tuple[str, ...]
    shape: torch.Size

    @property
    def name(self) -> str:
        """The first of its names."""
        return self.names[0]

    @property
    def layers(self) -> list[str]:
        """The names of the layers that have the parameter."""
        return [name.rpartition(".")[0] for name in self.names]


def parameter_slots(module: nn.Module) -> Mapping[str, ParameterSlot]:
    """Each parameter's slot, by each of its names."""
    names: dict[nn.Parameter, list[str]] = {}
    for name, parameter in module.named_parameters(remove_duplicate=False):
        names.setdefault(parameter, []).append(name)
    slots: dict[str, ParameterSlot] = {}
    for parameter, known in names.items():
        slots.update(dict.fromkeys(known, ParameterSlot(tuple(known), parameter.shape)))
    return slots
