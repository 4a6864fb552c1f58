"""Ranks as threads of this process, which try how a small model is divided."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import torch
from torch import Tensor

from turnout.core.errors import CollectiveError
from turnout.kernels.collectives.rank_order import largest, part_of, summed

__all__ = ["Threads", "on_threads"]

SECONDS = 60.0
"""Longer than any trial: a thread that waits so long waits for one that has failed."""
T = TypeVar("T")


class _Room:
    def __init__(self, size: int) -> None:
        self.barrier = threading.Barrier(size, timeout=SECONDS)
        self.given = [torch.empty(0)] * size


class Threads:
    """Implements Collective, but for what stages send each other."""

    def __init__(self, room: _Room, rank: int, size: int) -> None:
        self.rank, self.size = rank, size
        self._room = room

    def all_reduce(self, x: Tensor) -> Tensor:
        return summed(self._of_all(x))

    def all_reduce_max(self, x: Tensor) -> Tensor:
        return largest(self._of_all(x))

    def gather(self, x: Tensor, sizes: Sequence[int] | None = None) -> Tensor | None:
        found = self._of_all(x)
        return None if self.rank else torch.cat(found, -1)

    def all_gather(self, x: Tensor) -> Tensor:
        return torch.cat(self._of_all(x))

    def reduce_scatter(self, x: Tensor) -> Tensor:
        return summed([each[part_of(x, self.rank, self.size)] for each in self._of_all(x)])

    def send(self, x: Tensor, to: int) -> None:
        raise NotImplementedError("a trial's stages run one after the other")

    def receive(self, like: Tensor, source: int) -> Tensor:
        raise NotImplementedError("a trial's stages run one after the other")

    def barrier(self) -> None:
        self._of_all(torch.empty(0))

    def abort(self) -> None:
        self._room.barrier.abort()

    def close(self) -> None:
        """Has nothing to free."""

    def _of_all(self, x: Tensor) -> list[Tensor]:
        room = self._room
        room.given[self.rank] = x.clone()
        try:
            room.barrier.wait()
            found = list(room.given)
            room.barrier.wait()
        except threading.BrokenBarrierError:
            raise CollectiveError("another thread of a trial has failed") from None
        return found


def on_threads(size: int, work: Callable[[Threads], T]) -> list[T]:
    """Runs `work` on each rank; returns what each returned. Raises what the first to fail raised."""
    room, faults = _Room(size), list[BaseException]()

    def run(rank: int) -> T:
        collective = Threads(room, rank, size)
        try:
            return work(collective)
        except BaseException as error:
            faults.append(error)
            collective.abort()
            raise

    with ThreadPoolExecutor(size) as pool:
        futures = [pool.submit(run, rank) for rank in range(size)]
    if faults:
        raise faults[0]
    return [future.result() for future in futures]
