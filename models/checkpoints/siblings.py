"""Linear layers that read the same input, side by side in code that is not ours: computed as one.

Where a family's module says which of its linear layers read the same tensor (`ModelCapabilities.siblings`),
they are joined once all of them have their weights. Each keeps its place: the first that is called computes
all, and the others hand out their part.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import torch
from torch import Tensor, nn

from turnout.core.interfaces.compute import FusedKernels
from turnout.core.interfaces.models import ModelCapabilities
from turnout.models.decoder.packed import layer_capabilities, pack, packs

__all__ = ["JointPart", "Siblings"]


class Siblings:
    """The groups of linear layers of a module that become one each."""

    def __init__(self, module: nn.Module, kernels: FusedKernels) -> None:
        """Called before a quantizer exchanges layers."""
        declared: ModelCapabilities = getattr(module, "capabilities", ModelCapabilities())
        self._module, self._kernels = module, kernels
        self._group_of = {name: group for group in declared.siblings for name in group}
        self._outputs = {name: _linear(module, name).out_features for name in self._group_of}

    def join_complete(self, names: Iterable[str]) -> list[str]:
        """Joins the groups that one of the layers `names` completed; returns the names that are in none."""
        others = []
        for name in names:
            group = self._group_of.get(name)
            if group is None:
                others.append(name)
            elif not isinstance(self._module.get_submodule(name), JointPart):
                self._join(group)
        return others

    def _join(self, group: Sequence[str]) -> None:
        layers = [self._module.get_submodule(name) for name in group]
        linears = [layer for layer in layers if isinstance(layer, nn.Linear) and packs(layer)]
        join = layer_capabilities(layers[0]).join
        if len(linears) == len(layers):
            joint: nn.Module | None = pack(linears, self._kernels)
        else:
            joint = None if join is None else join(layers[1:])
        if joint is None:
            return
        first, shared = 0, _Joint(joint, len(group))
        for name in group:
            part = JointPart(shared, first, self._outputs[name])
            # The joint layer is a submodule of the first alone, so that its buffers have one name.
            if first == 0:
                part.joint = joint
            self._module.set_submodule(name, part)
            first += self._outputs[name]


class _Joint:
    """Computes the joint layer once for all its parts."""

    def __init__(self, layer: nn.Module, parts: int) -> None:
        self._layer, self._parts = layer, parts
        self._input: Tensor | None = None
        self._output = torch.empty(0)
        self._given: set[int] = set()

    def of(self, x: Tensor, part: int) -> Tensor:
        """x: [rows, inputs]; returns all outputs for the `part` that begins there."""
        if x is not self._input or part in self._given:
            self._input, self._given = x, set()
            self._output = self._layer(x.reshape(-1, x.shape[-1]))
        output = self._output
        self._given.add(part)
        if len(self._given) == self._parts:
            self._input, self._output = None, output[:0]
        return output


class JointPart(nn.Module):
    """A linear layer that is a part of a joint one. It maps [..., inputs] to [..., outputs]."""

    def __init__(self, joint: _Joint, first: int, outputs: int) -> None:
        super().__init__()
        self._joint, self._first, self._last = joint, first, first + outputs

    def forward(self, x: Tensor) -> Tensor:
        out = self._joint.of(x, self._first)[:, self._first : self._last]
        return out.view(*x.shape[:-1], out.shape[-1])


def _linear(module: nn.Module, name: str) -> nn.Linear:
    layer = module.get_submodule(name)
    assert isinstance(layer, nn.Linear), "families declare linear layers"
    return layer
