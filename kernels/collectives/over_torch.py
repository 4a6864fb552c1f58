"""Collectives by a backend of torch.distributed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import torch
from torch import Tensor

from turnout.kernels.collectives.rank_order import largest, part_of, summed
from turnout.kernels.collectives.torch_groups import TorchGroup, as_collective_errors

__all__ = ["OverTorch"]


class OverTorch:
    """Implements Collective. Tensors travel as bytes, and each rank adds them itself, in rank order."""

    name: ClassVar[str]
    """For error messages."""

    def __init__(self, group: TorchGroup, rank: int, size: int) -> None:
        self.rank, self.size = rank, size
        self._group = group
        self.barrier()

    def all_reduce(self, x: Tensor) -> Tensor:
        return x.copy_(summed(self._of_all(x)))

    def all_reduce_max(self, x: Tensor) -> Tensor:
        return x.copy_(largest(self._of_all(x)))

    def gather(self, x: Tensor, sizes: Sequence[int] | None = None) -> Tensor | None:
        if self.rank:
            self.send(x, 0)
            return None
        widths = [x.shape[-1]] * self.size if sizes is None else sizes
        parts = [x]
        for rank in range(1, self.size):
            parts.append(self.receive(x.new_empty(*x.shape[:-1], widths[rank]), rank))
        return torch.cat(parts, -1)

    def all_gather(self, x: Tensor) -> Tensor:
        return torch.cat(self._of_all(x))

    def reduce_scatter(self, x: Tensor) -> Tensor:
        part = part_of(x, self.rank, self.size)
        return summed([each[part] for each in self._of_all(x)])

    def send(self, x: Tensor, to: int) -> None:
        with as_collective_errors(self.name):
            self._group.send([_bytes(x)], to, 0).wait()

    def receive(self, like: Tensor, source: int) -> Tensor:
        received = torch.empty_like(like, memory_format=torch.contiguous_format)
        with as_collective_errors(self.name):
            self._group.recv([_bytes(received)], source, 0).wait()
        return received

    def barrier(self) -> None:
        self._of_all(torch.zeros(1))

    def abort(self) -> None:
        """Does nothing where a backend cannot: a wait then ends when the process that is waited for has."""

    def close(self) -> None:
        del self._group

    def _of_all(self, x: Tensor) -> list[Tensor]:
        """Returns x of each rank, in rank order."""
        x = x.contiguous()
        found = [torch.empty_like(x) for _ in range(self.size)]
        with as_collective_errors(self.name):
            self._group.allgather([list(map(_bytes, found))], [_bytes(x)]).wait()
        return found


def _bytes(x: Tensor) -> Tensor:
    """Returns x as bytes: gloo then needs to know nothing of its dtype."""
    return x.contiguous().view(-1).view(torch.uint8)
