"""The collective interface: how the ranks of one engine put their shares of a tensor together.

An engine that spans several devices runs one process, a *rank*, on each. All ranks call the same methods in
the same order, with tensors of the same shape and dtype, except where a method says otherwise. Nothing here
imports torch; tensors appear in annotations alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["Collective"]


class Collective(Protocol):
    """A group of ranks, as one of them sees it. Methods raise CollectiveError once a rank is gone.

    Only one thread of a rank calls these methods, `abort` excepted.
    """

    @property
    def rank(self) -> int:
        """The number of this rank within the group."""
        ...

    @property
    def size(self) -> int:
        """The ranks of the group."""
        ...

    def all_reduce(self, x: Tensor) -> Tensor:
        """Returns the sum over ranks; may overwrite x and return it.

        Elements are added in rank order, 16-bit ones in float32, so that a sum has the same bits on every
        rank, and in a batch of any size.
        """
        ...

    def all_reduce_max(self, x: Tensor) -> Tensor:
        """Returns the largest over ranks, element by element; may overwrite x and return it."""
        ...

    def gather(self, x: Tensor, sizes: Sequence[int] | None = None) -> Tensor | None:
        """Returns [rows, n] of each rank, joined along the last dimension, on rank 0, and None elsewhere.

        sizes: n of each rank, where they differ; None: all have this rank's.
        """
        ...

    def all_gather(self, x: Tensor) -> Tensor:
        """Returns x of all ranks, joined along the first dimension, in rank order."""
        ...

    def reduce_scatter(self, x: Tensor) -> Tensor:
        """Returns this rank's part of what `all_reduce` would return, of x's first dimension in equal parts.

        Raises ValueError where the ranks cannot divide the first dimension evenly.
        """
        ...

    def send(self, x: Tensor, to: int) -> None:
        """Sends x to rank `to`, which calls `receive`; returns once x may be overwritten."""
        ...

    def receive(self, like: Tensor, source: int) -> Tensor:
        """Returns what rank `source` sends to this rank, of the shape and dtype of `like`, which may be
        overwritten."""
        ...

    def barrier(self) -> None:
        """Returns once all ranks have called it."""
        ...

    def abort(self) -> None:
        """Ends the waits of all ranks, with CollectiveError, as soon as the implementation can; any thread
        may call it. ``gloo`` waits until the connection to the rank that is gone breaks."""
        ...

    def close(self) -> None:
        """Frees what the group takes of this process. No other rank needs to take part."""
        ...
