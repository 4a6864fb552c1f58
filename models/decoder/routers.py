"""Which experts a token goes to, and what each of them weighs."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from turnout.kernels import CpuKernels
from turnout.kernels.compiled import PackedWeights
from turnout.kernels.linears import FloatWeights

__all__ = ["CorrectedRouter", "LikelihoodRouter", "Router", "SoftmaxRouter", "WideRouter"]


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

    @property
    def native_weights(self) -> FloatWeights | None:
        """What the kernels need to compute the scores themselves; None: they are not packed."""
        return None if self._packed is None else FloatWeights(self._packed[1], self.bias)


class SoftmaxRouter(Router):
    """Takes the most likely experts, with their likelihoods among all or, `normalized`, among themselves."""

    def __init__(
        self, size: int, experts: int, top: int, *, normalized: bool = True, bias: bool = False
    ) -> None:
        super().__init__(size, experts, top, bias)
        self.normalized = normalized

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        scores = self.scores(x)
        if self._packed is not None:
            return self._packed[0].route(scores, self.top, normalized=self.normalized)
        weights, chosen = scores.softmax(-1, dtype=torch.float32).topk(self.top)
        if self.normalized:
            weights = weights / weights.sum(-1, keepdim=True)
        return chosen, weights


class WideRouter(Router):
    """Scores in float32, and scales the weights."""

    def __init__(self, size: int, experts: int, top: int, scale: float) -> None:
        super().__init__(size, experts, top)
        self.scale = scale

    def scores(self, x: Tensor) -> Tensor:
        if self._packed is None:
            assert self.weight is not None
            return functional.linear(x.float(), self.weight.float())
        return super().scores(x.float())

    def pack(self, kernels: CpuKernels) -> None:
        if self.weight is not None:
            self.weight = nn.Parameter(self.weight.float(), requires_grad=False)
        super().pack(kernels)


class LikelihoodRouter(WideRouter):
    """Takes the most likely experts, of the groups whose best expert is most likely (DeepSeek-V2)."""

    def __init__(
        self, size: int, experts: int, top: int, scale: float, groups: int = 1, top_groups: int = 1
    ) -> None:
        super().__init__(size, experts, top, scale)
        self.groups, self.top_groups = groups, top_groups

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        scores = self.scores(x).softmax(-1)
        if self.groups > 1:
            best = scores.view(len(x), self.groups, -1).amax(-1)
            scores = scores.masked_fill(~among_groups(best, self.top_groups, scores.shape[1]), 0.0)
        weights, chosen = scores.topk(self.top)
        return chosen, weights * self.scale


class CorrectedRouter(WideRouter):
    """Takes experts by sigmoid scores with a learned correction, which does not weigh (DeepSeek-V3)."""

    def __init__(
        self,
        size: int,
        experts: int,
        top: int,
        scale: float,
        groups: int,
        top_groups: int,
        *,
        normalized: bool,
    ) -> None:
        super().__init__(size, experts, top, scale)
        self.e_score_correction_bias = nn.Parameter(torch.empty(experts))
        self.groups, self.top_groups, self.normalized = groups, top_groups, normalized

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        scores = self.scores(x).sigmoid()
        corrected = scores + self.e_score_correction_bias.float()
        best = corrected.view(len(x), self.groups, -1).topk(2, dim=-1).values.sum(-1)
        allowed = among_groups(best, self.top_groups, scores.shape[1])
        chosen = corrected.masked_fill(~allowed, float("-inf")).topk(self.top).indices
        weights = scores.gather(1, chosen)
        if self.normalized:
            weights = weights / (weights.sum(-1, keepdim=True) + 1e-20)
        return chosen, weights * self.scale


def among_groups(best: Tensor, count: int, experts: int) -> Tensor:
    """Says of each expert whether its group is among the `count` best: bool [tokens, experts].

    best: a score for each group, [tokens, groups]; groups are neighbours.
    """
    allowed = torch.zeros_like(best, dtype=torch.bool)
    allowed.scatter_(1, best.topk(count).indices, True)
    return allowed.repeat_interleave(experts // best.shape[1], dim=1)
