"""The tensors of a KV pool, and the storage of keys and values in them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from turnout.core.types.model_spec import ModelSpec

__all__ = ["Lane", "PlainStorage", "PoolShape", "Scratch", "Storage", "zeros"]


@dataclass(frozen=True)
class PoolShape:
    """The size of a KV pool, and the unit in which it is read."""

    layers: int
    slots: int
    """Token positions."""
    kv_heads: int
    head_dim: int
    unit: int = 1
    """Slots of a unit, which a read by index brings at a time: a block. Divides `slots`."""

    @classmethod
    def of(cls, spec: ModelSpec, slots: int, unit: int = 1) -> PoolShape:
        return cls(spec.layers, slots, spec.kv_heads, spec.head_dim, unit)


class Storage(ABC):
    """Stores the keys and values of every layer and slot."""

    @property
    @abstractmethod
    def tensors(self) -> Sequence[Tensor]:
        """All tensors, [layers, slots, …] each: a copy of the same slots of all of them copies tokens."""

    @abstractmethod
    def write(self, layer: int, slots: Tensor, k: Tensor, v: Tensor) -> None:
        """Writes k and v, [tokens, kv_heads, head_dim], to `slots`, [tokens], which are all different."""

    @abstractmethod
    def read(self, layer: int, where: Tensor | slice) -> tuple[Tensor, Tensor]:
        """Keys and values, [tokens, kv_heads, head_dim] each, in the dtype to compute in.

        where: a slice of slots, or the numbers of units. The result is valid until the next call.
        """


class PlainStorage(Storage):
    """Stores keys and values as they are computed, or rounded to another floating-point dtype."""

    def __init__(
        self, shape: PoolShape, device: torch.device, compute: torch.dtype, stored: torch.dtype
    ) -> None:
        row = (shape.kv_heads, shape.head_dim)
        self._lanes = [Lane(shape, row, device, stored) for _ in "kv"]
        self._computed = [Scratch(row, device, compute) for _ in "kv"]
        self._converts = compute != stored

    @property
    def tensors(self) -> Sequence[Tensor]:
        return [lane.tensor for lane in self._lanes]

    def write(self, layer: int, slots: Tensor, k: Tensor, v: Tensor) -> None:
        for lane, rows in zip(self._lanes, (k, v), strict=True):
            lane.write(layer, slots, rows)

    def read(self, layer: int, where: Tensor | slice) -> tuple[Tensor, Tensor]:
        keys, values = (lane.read(layer, where) for lane in self._lanes)
        if not self._converts:
            return keys, values
        k, v = (scratch.take(len(keys)) for scratch in self._computed)
        return k.copy_(keys), v.copy_(values)


class Lane:
    """One tensor of the pool, [layers, slots, *row], and memory to gather units of it in."""

    def __init__(
        self, shape: PoolShape, row: tuple[int, ...], device: torch.device, dtype: torch.dtype
    ) -> None:
        self.tensor = zeros((shape.layers, shape.slots, *row), device, dtype)
        self._unit = shape.unit
        self._units = self.tensor.view(
            shape.layers, shape.slots // shape.unit, shape.unit * int(np.prod(row))
        )
        self._gathered = Scratch(row, device, dtype)

    def write(self, layer: int, slots: Tensor, rows: Tensor) -> None:
        self.tensor[layer].index_copy_(0, slots, rows.to(self.tensor.dtype))

    def read(self, layer: int, where: Tensor | slice) -> Tensor:
        """[slots, *row]: a view for a slice, otherwise a copy."""
        if isinstance(where, slice):
            return self.tensor[layer, where]
        out = self._gathered.take(len(where) * self._unit)
        torch.index_select(self._units[layer], 0, where, out=out.view(len(where), -1))
        return out


class Scratch:
    """Memory for temporary rows, kept between steps: to allocate it would cost more than to copy."""

    def __init__(self, row: tuple[int, ...], device: torch.device, dtype: torch.dtype) -> None:
        self._rows = torch.empty((0, *row), device=device, dtype=dtype)

    def take(self, rows: int) -> Tensor:
        """Uninitialized [rows, *row]."""
        if rows > len(self._rows):
            self._rows = self._rows.new_empty(2 * rows, *self._rows.shape[1:])
        return self._rows[:rows]


def zeros(shape: tuple[int, ...], device: torch.device, dtype: torch.dtype) -> Tensor:
    """A tensor of zeros: uninitialized memory may contain NaN, which a mask does not hide.

    On a CPU NumPy allocates it, whose zeros take no memory until they are written to.
    """
    if device.type != "cpu" or 0 in shape:
        return torch.zeros(shape, device=device, dtype=dtype)
    size = int(np.prod(shape)) * dtype.itemsize
    return torch.from_numpy(np.zeros(size, dtype=np.uint8)).view(dtype).view(shape)
