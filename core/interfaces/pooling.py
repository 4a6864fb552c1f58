"""The pooling interface: turns a prompt's hidden states into a vector, or into one for each token.

Nothing here imports torch; tensors appear in annotations alone.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

from turnout.core.types.pooling import Pooled, PoolingParams, Reads

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["BLOCK", "Pooling", "PoolingOutput"]

BLOCK = 64
"""Positions after which `Pooling.fold` is called."""


class Pooling(ABC):
    """Turns hidden states into vectors. One object serves all requests; `state` is all that it keeps."""

    reads: ClassVar[Reads] = "all"
    """Whose hidden states it reads: those of the ``first`` position, of the ``last``, or of ``all``. What is
    not read need not be computed again where a prefix is cached."""
    per_token: ClassVar[bool] = False
    """Whether it gives a vector for each token of the prompt."""

    @abstractmethod
    def fold(self, state: Any, hidden: Tensor, first: int) -> Any:
        """Takes in hidden states [positions, hidden_size], those of `first` and what follows; returns the
        state.

        Called with positions in order. Of ``all``, each call but the last has `BLOCK` of them, whatever the
        steps computed together, so that sums have the same bits for every chunking and batch. `state` is None
        at first. Keep no view of `hidden`: the next step may overwrite it.
        """

    @abstractmethod
    def vectors(self, state: Any, length: int) -> Tensor:
        """Returns the vector [size] of a prompt of `length` tokens, or [length, size] if `per_token`.

        Not normalized; float32, on the device of the hidden states.
        """


class PoolingOutput(Protocol):
    """What follows a strategy: projections, the cut, the norm, or the model's head."""

    def __call__(self, vectors: Tensor, params: PoolingParams) -> Callable[[], Pooled]:
        """Returns what waits for the result, without waiting for the device."""
        ...
