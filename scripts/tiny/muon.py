"""Muon, in float32: momentum whose matrices are orthogonalized before they are applied.

https://kellerjordan.github.io/posts/muon/. torch.optim.Muon iterates in bfloat16, which
takes 60 times as long on a CPU without bfloat16 arithmetic.
"""

from collections.abc import Iterable

import torch
from torch import Tensor

NEWTON_SCHULZ = (3.4445, -4.7750, 2.0315)
NEWTON_SCHULZ_STEPS = 5


def orthogonalize(matrix: Tensor) -> Tensor:
    """Bring every singular value near 1 by a quintic Newton-Schulz iteration."""
    a, b, c = NEWTON_SCHULZ
    wide = matrix if matrix.size(0) <= matrix.size(1) else matrix.T
    x = wide / (wide.norm() + 1e-7)
    for _ in range(NEWTON_SCHULZ_STEPS):
        gram = x @ x.T
        x = torch.addmm(x, torch.addmm(gram, gram, gram, beta=b, alpha=c), x, beta=a)
    orthogonal: Tensor = x if wide is matrix else x.T
    return orthogonal


class Muon(torch.optim.Optimizer):
    """For the weight matrices of the layers; embeddings and norms want AdamW."""

    def __init__(
        self,
        parameters: Iterable[Tensor],
        lr: float,
        momentum: float = 0.95,
        weight_decay: float = 0.1,
    ) -> None:
        defaults = {"lr": lr, "momentum": momentum, "weight_decay": weight_decay}
        super().__init__(parameters, defaults)

    @torch.no_grad()
    def step(self) -> None:  # type: ignore[override]
        for group in self.param_groups:
            for parameter in group["params"]:
                self._update(parameter, **{k: group[k] for k in self.defaults})

    def _update(self, weight: Tensor, lr: float, momentum: float, weight_decay: float) -> None:
        assert weight.grad is not None
        state = self.state[weight]
        if not state:
            state["average"] = torch.zeros_like(weight)
        average = state["average"]
        average.lerp_(weight.grad, 1 - momentum)
        nesterov = weight.grad.lerp(average, momentum)
        # The factor gives the update the root mean square that AdamW's has, so that
        # both take the same learning rate (https://arxiv.org/abs/2502.16982).
        scale = 0.2 * max(weight.shape) ** 0.5
        weight.mul_(1 - lr * weight_decay)
        weight.add_(orthogonalize(nesterov), alpha=-lr * scale)
