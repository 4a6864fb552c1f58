"""The places that a model has for tensors."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import nn

__all__ = ["Slot", "slots_of"]


@dataclass(frozen=True)
class Slot:
    """A parameter and all its dotted names: tied layers share one. Known by the first of them.

    Names and not layers, which would live on here after a quantizer replaced them.
    """

    names: tuple[str, ...]
    shape: torch.Size

    @property
    def name(self) -> str:
        return self.names[0]

    @property
    def layers(self) -> list[str]:
        return [name.rpartition(".")[0] for name in self.names]


def slots_of(module: nn.Module) -> Mapping[str, Slot]:
    """The slot behind every parameter name."""
    names: dict[nn.Parameter, list[str]] = {}
    for name, parameter in module.named_parameters(remove_duplicate=False):
        names.setdefault(parameter, []).append(name)
    slots: dict[str, Slot] = {}
    for parameter, known in names.items():
        slots.update(dict.fromkeys(known, Slot(tuple(known), parameter.shape)))
    return slots
