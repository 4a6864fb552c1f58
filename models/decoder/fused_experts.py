"""Experts that compiled kernels compute in one call."""

from __future__ import annotations

from torch import nn

from turnout.kernels import CpuKernels
from turnout.kernels.experts import Bounds, ExpertWeights, NativeExperts
from turnout.models.decoder.experts import Experts, JointExperts, exchange_experts
from turnout.models.decoder.fused import FusedMLP
from turnout.models.decoder.gates import BoundedGate, silu_gate
from turnout.models.decoder.packed import layer_capabilities

__all__ = ["FusedExperts", "fuse_experts"]


def fuse_experts(module: nn.Module, kernels: CpuKernels) -> None:
    """Exchanges the experts of `module`, wherever they are."""
    exchange_experts(module, lambda experts: FusedExperts(experts, kernels))


class FusedExperts(JointExperts):
    """All experts of a layer in one call."""

    def __init__(self, like: Experts, kernels: CpuKernels) -> None:
        super().__init__(like)
        self._kernels = kernels

    def joined(self) -> NativeExperts | None:
        experts = [expert for expert in self if isinstance(expert, FusedMLP)]
        weights = [each for each in map(_weights, experts) if each is not None]
        gates = {expert.gated for expert in experts}
        if len(weights) < len(self) or len(gates) > 1:
            return None
        (gate,) = gates
        group = layer_capabilities(experts[0].down_proj).native_group
        if isinstance(gate, BoundedGate):
            bounds = Bounds(gate.slope, gate.limit)
            return NativeExperts(self._kernels, weights, bounds, self.before, group)
        return NativeExperts(self._kernels, weights, None, self.before, group) if gate is silu_gate else None


def _weights(expert: FusedMLP) -> ExpertWeights | None:
    if expert.joint is None:
        return None
    gate_up = layer_capabilities(expert.joint).native_weights
    down = layer_capabilities(expert.down_proj).native_weights
    return None if gate_up is None or down is None else ExpertWeights(gate_up, down)
