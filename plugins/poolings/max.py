"""Pooling by the largest numbers."""

from __future__ import annotations

from torch import Tensor

from turnout.core.interfaces.pooling import Pooling

__all__ = ["Max"]


class Max(Pooling):
    """The largest of all hidden states, number by number."""

    def fold(self, state: Tensor | None, hidden: Tensor, first: int) -> Tensor:
        largest = hidden.amax(0)
        return largest if state is None else largest.maximum(state)

    def vectors(self, state: Tensor, length: int) -> Tensor:
        return state.float()
