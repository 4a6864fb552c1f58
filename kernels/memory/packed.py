"""Memory for packed weights, in large pages: with fewer of them to look up, weights are read faster."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable
from threading import Lock
from weakref import ReferenceType, finalize, ref

import torch
from torch import Tensor

__all__ = ["LARGE_PAGE", "SHELF", "SMALL", "PackedMemory"]

LARGE_PAGE = 2 << 20
"""Bytes."""
SHELF = 32 << 20
"""Bytes of a shelf."""
SMALL = SHELF // 4
"""Layers of so many bytes or fewer share shelves."""
ALIGNED = 4096
"""Bytes, of which each layer on a shelf begins at a multiple."""
OPEN = 8
"""How many of the latest shelves are looked through for a place."""

Enlarge = Callable[[int, int], None]
"""Asks the system for large pages behind memory that nothing was written to: its address and bytes."""


class PackedMemory:
    """Gives out tensors that nothing was written to.

    A layer of some hundred kilobytes, such as an expert, fills no large page, or leaves half of one empty. So
    small layers share shelves, side by side in the order in which they are packed. What one gives back, as
    layers do that were joined, another one gets.
    """

    def __init__(self, enlarge: Enlarge) -> None:
        self._enlarge = enlarge
        self._shelves: list[ReferenceType[_Shelf]] = []
        """The latest ones; each lives as long as a layer that lies there."""
        self._lock = Lock()

    def room(self, *shape: int, dtype: torch.dtype) -> Tensor:
        """Returns a tensor of that shape and dtype."""
        size = math.prod(shape) * dtype.itemsize
        memory = _in_large_pages(size, self._enlarge) if size > SMALL else self._on_a_shelf(size)
        return memory[:size].view(dtype).view(shape)

    def _on_a_shelf(self, size: int) -> Tensor:
        with self._lock:
            for each in reversed(self._shelves):
                shelf = each()
                if shelf is not None and (memory := shelf.take(size)) is not None:
                    return memory
            shelf = _Shelf(_in_large_pages(SHELF, self._enlarge))
            living = [each for each in self._shelves if each() is not None]
            self._shelves = [*living[1 - OPEN :], ref(shelf)]
            memory = shelf.take(size)
            assert memory is not None, "a new shelf has room for a small layer"
            return memory


class _Shelf:
    """Memory that layers share."""

    def __init__(self, memory: Tensor) -> None:
        self._memory = memory.numpy()
        self._holes = [(0, len(memory))]
        """Where nothing lies, each from and to, in order."""
        self._given_back = deque[tuple[int, int]]()
        """Layers go when they like: while another one is put down, too."""

    def take(self, size: int) -> Tensor | None:
        """Returns so many bytes or a few more; None: there is no room."""
        while self._given_back:
            self._add_hole(self._given_back.popleft())
        size = max(1, -(-size // ALIGNED)) * ALIGNED
        for place, (start, end) in enumerate(self._holes):
            if end - start >= size:
                self._holes[place : place + 1] = [(start + size, end)] if start + size < end else []
                part = self._memory[start : start + size]
                # The tensor keeps `part`, and what is called when that goes keeps the shelf.
                finalize(part, self._give_back, (start, start + size)).atexit = False
                return torch.from_numpy(part)
        return None

    def _give_back(self, layer: tuple[int, int]) -> None:
        self._given_back.append(layer)

    def _add_hole(self, hole: tuple[int, int]) -> None:
        joined = list[tuple[int, int]]()
        for start, end in sorted([*self._holes, hole]):
            if joined and joined[-1][1] == start:
                joined[-1] = joined[-1][0], end
            else:
                joined.append((start, end))
        self._holes = joined


def _in_large_pages(size: int, enlarge: Enlarge) -> Tensor:
    """Returns so many bytes, which begin where a large page does.

    A last page of which less than half is used stays small ones.
    """
    memory = torch.empty(size + 2 * LARGE_PAGE, dtype=torch.uint8)
    start = -memory.data_ptr() % LARGE_PAGE
    enlarge(memory.data_ptr() + start, (size + LARGE_PAGE // 2) // LARGE_PAGE * LARGE_PAGE)
    return memory[start : start + size]
