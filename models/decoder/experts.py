"""Mixtures of experts: MLPs of which each token goes through a few."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable

import torch
from torch import Tensor, nn

from turnout.models.decoder.layers import GatedMLP, Linear
from turnout.models.decoder.routers import Router

__all__ = ["Experts", "GatedSparseMLP", "JointExperts", "SharedSparseMLP", "SparseMLP", "exchange_experts"]

Together = Callable[[Tensor, Tensor, Tensor], Tensor]
"""Computes what `Experts.forward` does."""


class Experts(nn.ModuleList):
    """The experts of a layer, or those that a rank has: gated MLPs like others, so that quantizers take
    their layers."""

    def __init__(self, experts: Iterable[nn.Module], before: int = 0, behind: int = 0) -> None:
        """before, behind: how many experts other ranks have. Each keeps its number in the layer."""
        super().__init__()
        self.before, self.behind = before, behind
        for number, expert in enumerate(experts, before):
            self.add_module(str(number), expert)

    def forward(self, x: Tensor, chosen: Tensor, weights: Tensor) -> Tensor:
        """Returns the weighted sums of the chosen experts: [tokens, size].

        chosen: int64 [tokens, top]; weights: float32 [tokens, top]. Pairs of token and expert are sorted by
        expert once, and each expert computes its rows together. The pairs of other ranks' experts add 0.
        """
        tokens, top = chosen.shape
        numbers = chosen.flatten() - self.before
        here = (numbers >= 0) & (numbers < len(self))
        order = numbers.masked_fill(~here, len(self)).argsort(stable=True)[: int(here.sum())]
        counts = numbers[here].bincount(minlength=len(self)).tolist()
        rows = torch.split(x[order // top], counts)
        out = x.new_zeros(tokens * top, x.shape[1])
        if len(order):
            out[order] = torch.cat([expert(own) for expert, own in zip(self, rows, strict=True) if len(own)])
        weighted = out.view(tokens, top, -1) * weights[..., None].to(x.dtype)
        return weighted.sum(1)


class JointExperts(Experts):
    """Computes all experts at once, or one by one where the kernels cannot compute a quantizer's layers."""

    def __init__(self, like: Experts) -> None:
        super().__init__(like, like.before, like.behind)
        self._together: Together | None = None
        self._looked = False

    @abstractmethod
    def joined(self) -> Together | None:
        """Returns all experts as one; None: the kernels cannot compute all of them."""

    @property
    def together(self) -> Together | None:
        """What `joined` returns, which is called in the first step: by then weights are where they stay."""
        if not self._looked:
            self._together, self._looked = self.joined(), True
        return self._together

    def forward(self, x: Tensor, chosen: Tensor, weights: Tensor) -> Tensor:
        together = self.together
        if together is None:
            return super().forward(x, chosen, weights)
        return together(x, chosen, weights)


def exchange_experts(module: nn.Module, exchanged: Callable[[Experts], JointExperts]) -> None:
    """Exchanges the experts of `module`, wherever they are."""
    for name, layer in list(module.named_modules()):
        if type(layer) is Experts:
            module.set_submodule(name, exchanged(layer))


class SparseMLP(nn.Module):
    """A router and its experts."""

    def __init__(self, router: Router, experts: Experts) -> None:
        super().__init__()
        self.gate, self.experts = router, experts

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.experts(x, *self.gate(x))
        return out


class SharedSparseMLP(SparseMLP):
    """Adds an MLP that all tokens go through (DeepSeek)."""

    def __init__(self, router: Router, experts: Experts, shared: GatedMLP) -> None:
        super().__init__(router, experts)
        self.shared_experts = shared

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = super().forward(x) + self.shared_experts(x)
        return out


class GatedSparseMLP(SparseMLP):
    """Adds an MLP of which each token takes as much as a gate says (Qwen2-MoE)."""

    def __init__(self, router: Router, experts: Experts, shared: GatedMLP, size: int) -> None:
        super().__init__(router, experts)
        self.shared_expert = shared
        self.shared_expert_gate = Linear(size, 1, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        shared: Tensor = torch.sigmoid(self.shared_expert_gate(x)) * self.shared_expert(x)
        return super().forward(x) + shared
