"""Experts that a GPU computes together: all of a layer in one kernel, without waiting for the GPU."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torch import Tensor, nn

from turnout.core.interfaces.compute import FusedKernels
from turnout.kernels.gpu.weights import DeviceWeights
from turnout.models.decoder.experts import Experts, JointExperts, exchange_experts
from turnout.models.decoder.fused import FusedMLP
from turnout.models.decoder.gates import Gate, silu_gate
from turnout.models.decoder.packed import layer_capabilities, packs

if TYPE_CHECKING:
    from turnout.kernels.gpu.experts import ExpertProducts

__all__ = ["GroupedExperts", "group_experts"]


def group_experts(module: nn.Module, kernels: FusedKernels) -> None:
    """Exchanges the experts of `module`, wherever they are."""
    exchange_experts(module, lambda experts: GroupedExperts(experts, kernels))


class GroupedExperts(JointExperts):
    """All experts of a layer in one kernel for each of their two layers."""

    def __init__(self, like: Experts, kernels: FusedKernels) -> None:
        super().__init__(like)
        self._kernels = kernels

    def joined(self) -> _Grouped | None:
        return _Grouped.of(self, self._kernels)


class _Grouped:
    """Both layers of all experts."""

    def __init__(
        self, gate_up: ExpertProducts, down: ExpertProducts, gate: Gate, kernels: FusedKernels, like: Experts
    ) -> None:
        """like: what says which experts other ranks have."""
        self._gate_up, self._down, self._gate, self._kernels = gate_up, down, gate, kernels
        self._before, self._partial = like.before, bool(like.before or like.behind)
        self._tall = gate_up.tall and down.tall

    @classmethod
    def of(cls, experts: Experts, kernels: FusedKernels) -> _Grouped | None:
        """Returns all experts as one; None: the kernels cannot compute all of them."""
        from turnout.kernels.gpu.experts import ExpertProducts  # imports Triton

        layers = [expert for expert in experts if isinstance(expert, FusedMLP)]
        joint = [_weights(layer.joint) for layer in layers]
        down = [_weights(layer.down_proj) for layer in layers]
        found = [each for each in (*joint, *down) if each is not None]
        gates = {layer.gated for layer in layers}
        if len(found) < 2 * len(experts) or len(gates) > 1:
            return None
        first, second = (ExpertProducts.of(each) for each in (found[: len(layers)], found[len(layers) :]))
        return None if first is None or second is None else cls(first, second, gates.pop(), kernels, experts)

    def __call__(self, x: Tensor, chosen: Tensor, weights: Tensor) -> Tensor:
        from turnout.kernels.gpu.experts import SortedPairs, add_up

        chosen = chosen - self._before if self._before else chosen
        pairs = SortedPairs(chosen, self._gate_up.experts, x.dtype, partial=self._partial, tall=self._tall)
        both = self._gate_up(x, pairs, gather=True)
        gated = self._kernels.gate(both) if self._gate is silu_gate else self._gate(*both.chunk(2, dim=-1))
        return add_up(self._down(gated, pairs, gather=False), weights)


def _weights(layer: nn.Module | None) -> DeviceWeights | None:
    if isinstance(layer, nn.Linear) and packs(layer):
        return DeviceWeights(layer.weight, None, layer.bias)
    return None if layer is None else layer_capabilities(layer).device_weights
