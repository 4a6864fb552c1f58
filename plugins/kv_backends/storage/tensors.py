"""The tensors of a KV pool, and the storage of keys and values in them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from turnout.core.types.layer_attention import LayerAttention
from turnout.kernels.attention.stored import StoredVectors

__all__ = ["Lane", "PlainStorage", "PoolShape", "Scratch", "Storage", "both_of", "stored_of", "zeros"]


@dataclass(frozen=True)
class PoolShape:
    """The size of the KV pool of layers of one shape, and the unit in which it is read."""

    layers: int
    slots: int
    """Token positions."""
    kv_heads: int
    key_dim: int
    value_dim: int
    unit: int = 1
    """Slots of a unit, which a read by index brings at a time: a block. Divides `slots`."""
    values_in_keys: bool = False
    """Values are the first `value_dim` numbers of keys, and nothing else is stored of them."""

    @classmethod
    def of(cls, rule: LayerAttention, layers: int, slots: int, unit: int = 1) -> PoolShape:
        dims = rule.key_dim, rule.value_dim
        return cls(layers, slots, rule.kv_heads, *dims, unit, values_in_keys=rule.values_in_keys)

    @property
    def rows(self) -> Sequence[tuple[int, int]]:
        """What is stored of a position, [heads, numbers] each: keys, and values not in them."""
        keys, values = (self.kv_heads, self.key_dim), (self.kv_heads, self.value_dim)
        return [keys] if self.values_in_keys else [keys, values]


class Storage(ABC):
    """Stores the keys and values of every layer and slot."""

    @property
    @abstractmethod
    def tensors(self) -> Sequence[Tensor]:
        """All tensors, [layers, slots, …] each: a copy of the same slots of all of them copies tokens."""

    @abstractmethod
    def write(self, layer: int, slots: Tensor, k: Tensor, v: Tensor | None) -> None:
        """Writes k and v, [tokens, kv_heads, key_dim or value_dim], to `slots`, [tokens], all different.

        v: None where values are in the keys.
        """

    @abstractmethod
    def read(self, layer: int, where: Tensor | slice) -> tuple[Tensor, Tensor]:
        """Keys and values, [tokens, kv_heads, key_dim or value_dim], in the dtype to compute in.

        where: a slice of slots, or the numbers of units. The result is valid until the next call.
        """

    @abstractmethod
    def stored(self, layer: int) -> tuple[StoredVectors, StoredVectors]:
        """Keys and values of a layer as they are stored, for kernels that read and write them in place."""

    def place(self, layer: int) -> tuple[Storage, int]:
        """The storage of the layer's shape, and the number that the layer has in its tensors."""
        return self, layer


class PlainStorage(Storage):
    """Stores keys and values as they are computed, or rounded to another floating-point dtype."""

    def __init__(
        self, shape: PoolShape, device: torch.device, compute: torch.dtype, stored: torch.dtype
    ) -> None:
        self._lanes = [Lane(shape, row, device, stored) for row in shape.rows]
        self._computed = [Scratch(row, device, compute) for row in shape.rows]
        self._converts = compute != stored
        self._value_dim = shape.value_dim

    @property
    def tensors(self) -> Sequence[Tensor]:
        return [lane.tensor for lane in self._lanes]

    def write(self, layer: int, slots: Tensor, k: Tensor, v: Tensor | None) -> None:
        for lane, rows in zip(self._lanes, stored_of(k, v), strict=True):
            lane.write(layer, slots, rows)

    def read(self, layer: int, where: Tensor | slice) -> tuple[Tensor, Tensor]:
        found = [lane.read(layer, where) for lane in self._lanes]
        if self._converts:
            pairs = zip(self._computed, found, strict=True)
            found = [scratch.take(len(rows)).copy_(rows) for scratch, rows in pairs]
        return both_of(found, self._value_dim)

    def stored(self, layer: int) -> tuple[StoredVectors, StoredVectors]:
        keys, values = both_of([lane.tensor[layer] for lane in self._lanes], self._value_dim)
        return StoredVectors(keys), StoredVectors(values)


def stored_of(k: Tensor, v: Tensor | None) -> Sequence[Tensor]:
    """What is to be stored: keys, and values unless they are in the keys."""
    return [k] if v is None else [k, v]


def both_of(found: Sequence[Tensor], value_dim: int) -> tuple[Tensor, Tensor]:
    """Keys and values, of what was stored."""
    return found[0], found[1] if len(found) > 1 else found[0][..., :value_dim]


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
