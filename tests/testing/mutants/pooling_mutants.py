"""Our pooling strategies, each with one mistake."""

from __future__ import annotations

import torch
from torch import Tensor

from turnout.plugins.poolings.cls import Cls
from turnout.plugins.poolings.last import Last
from turnout.plugins.poolings.mean import Mean


class KeepsAView(Last):
    """Reads memory of a later step."""

    def fold(self, state: None, hidden: Tensor, first: int) -> Tensor:
        return hidden[0]


class SharesItsState(Mean):
    """Adds up all prompts of the engine."""

    total: Tensor | None = None

    def fold(self, state: Tensor | None, hidden: Tensor, first: int) -> Tensor:
        self.total = super().fold(self.total, hidden, first)
        return self.total


class KeepsTheDtype(Cls):
    """Gives bfloat16 where the model computes in it."""

    def fold(self, state: None, hidden: Tensor, first: int) -> Tensor:
        return hidden[0].clone()


class GrowsWithThePrompt(Mean):
    """A number for each token, of which it says that they are one vector."""

    def fold(self, state: Tensor | None, hidden: Tensor, first: int) -> Tensor:
        sums = hidden.float().sum(-1)
        return sums if state is None else torch.cat([state, sums])

    def vectors(self, state: Tensor, length: int) -> Tensor:
        return state


POOLINGS = [KeepsAView, SharesItsState, KeepsTheDtype, GrowsWithThePrompt]
