"""Which experts a token goes to, and what each of them weighs."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from turnout.kernels import CpuKernels
from turnout.kernels.compiled import PackedWeights

__all__ = ["Router", "SoftmaxRouter"]


class Router(nn.Module):
    """Scores the experts for each token. It is no `nn.Linear`, so that no quantizer takes it."""

    def __init__(self, size: int, experts: int, top: int, bias: bool = False) -> None:
        """size: of the tokens' hidden states; top: how many experts a token goes to."""
        super().__init__()
        self.weight: nn.Parameter | None = nn.Parameter(torch.empty(experts, size))
        self.bias = nn.Parameter(torch.empty(experts)) if bias else None
        self.top = top
        self._packed: tuple[CpuKernels, PackedWeights] | None = None

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Returns the chosen experts, int64 [tokens, top], and their weights, float32 [tokens, top]."""
        raise NotImplementedError

    def scores(self, x: Tensor) -> Tensor:
        """Returns a score for each expert, [tokens, experts]."""
        if self._packed is None:
            assert self.weight is not None
            return functional.linear(x, self.weight, self.bias)
        kernels, packed = self._packed
        return kernels.linear(x, packed, self.bias)

    def pack(self, kernels: CpuKernels) -> None:
        """Lets kernels compute the scores, which then do not depend on how many tokens there are."""
        if self.weight is not None:
            self._packed = kernels, kernels.pack([self.weight])
            self.weight = None


class SoftmaxRouter(Router):
    """Takes the most likely experts, with their likelihoods among all or, `normalized`, among themselves."""

    def __init__(
        self, size: int, experts: int, top: int, *, normalized: bool = True, bias: bool = False
    ) -> None:
        super().__init__(size, experts, top, bias)
        self.normalized = normalized

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        weights, chosen = self.scores(x).softmax(-1, dtype=torch.float32).topk(self.top)
        if self.normalized:
            weights = weights / weights.sum(-1, keepdim=True)
        return chosen, weights
