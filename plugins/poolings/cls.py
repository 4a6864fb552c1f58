"""Pooling by the first token, which encoders train for it."""

from __future__ import annotations

from typing import ClassVar

from torch import Tensor

from turnout.core.interfaces.pooling import Pooling
from turnout.core.types.pooling import Reads

__all__ = ["Cls"]


class Cls(Pooling):
    """The hidden state of the first token."""

    reads: ClassVar[Reads] = "first"

    def fold(self, state: None, hidden: Tensor, first: int) -> Tensor:
        return hidden[0].float().clone()

    def vectors(self, state: Tensor, length: int) -> Tensor:
        return state
