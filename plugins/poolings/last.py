"""Pooling by the last token, the only one that has seen all others in a decoder."""

from __future__ import annotations

from typing import ClassVar

from torch import Tensor

from turnout.core.interfaces.pooling import Pooling
from turnout.core.types.pooling import Reads

__all__ = ["Last"]


class Last(Pooling):
    """The hidden state of the last token."""

    reads: ClassVar[Reads] = "last"

    def fold(self, state: None, hidden: Tensor, first: int) -> Tensor:
        return hidden[0].float().clone()

    def vectors(self, state: Tensor, length: int) -> Tensor:
        return state
