"""No pooling: a vector for each token, for late interaction."""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor

from turnout.core.interfaces.pooling import Pooling

__all__ = ["Token"]


class Token(Pooling):
    """A vector for each token (Khattab and Zaharia 2020, ColBERT); scores are MaxSim."""

    per_token: ClassVar[bool] = True

    def fold(self, state: list[Tensor] | None, hidden: Tensor, first: int) -> list[Tensor]:
        return [*(state or ()), hidden.float().clone()]

    def vectors(self, state: list[Tensor], length: int) -> Tensor:
        return torch.cat(state)
