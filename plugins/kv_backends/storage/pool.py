"""The KV memory of a backend, and the storage that keeps keys and values in it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Protocol

import torch
from torch import Tensor

from turnout.core.errors import ModelError
from turnout.core.types.layer_attention import LayerAttention
from turnout.kernels.attention.stored import StoredVectors
from turnout.plugins.kv_backends.storage.dtypes import KVDtype
from turnout.plugins.kv_backends.storage.scaled import Fp8Storage, Int8Storage
from turnout.plugins.kv_backends.storage.tensors import PlainStorage, PoolShape, Storage

__all__ = ["LayeredStorage", "Places", "Pool", "make_storage", "own_layer"]


class Places(Protocol):
    """Where the layers of a model with KV groups are, whose keys and values all have one shape."""

    @property
    def height(self) -> int:
        """How many layers the pool has room for in each slot."""
        ...

    @property
    def table_of(self) -> Sequence[int]:
        """By layer: the number of the group whose block tables it reads."""
        ...

    @property
    def place_of(self) -> Sequence[int]:
        """By layer: its place in a slot."""
        ...


@dataclass(frozen=True)
class Pool:
    """The KV memory of a backend."""

    rules: Sequence[LayerAttention]
    """Of each layer."""
    slots: int
    """Token positions, of one KV group."""
    stored: KVDtype
    swap: int
    """Positions of host memory."""
    unit: int = 1
    """Slots that a read by index brings at a time."""
    places: Places | None = None
    """Of layers in KV groups; None: they are in one group, and each shape has a storage of its own."""

    @property
    def table_of(self) -> Sequence[int]:
        """By layer: the number of the group whose block tables it reads."""
        return (0,) * len(self.rules) if self.places is None else self.places.table_of

    def storage(self, device: torch.device, compute: torch.dtype) -> Storage:
        """The storage of all layers. compute: the dtype of keys and values as they are written and read."""
        if self.places is not None:
            shape = PoolShape.of(self.rules[0], self.places.height, self.slots, self.unit)
            storage = make_storage(self.stored, shape, device, compute)
            return LayeredStorage([(storage, place) for place in self.places.place_of])
        members: dict[PoolShape, list[int]] = {}
        for layer, rule in enumerate(self.rules):
            if rule.kv_from is None:
                members.setdefault(PoolShape.of(rule, 1, self.slots, self.unit), []).append(layer)
        made = [
            (make_storage(self.stored, replace(shape, layers=len(layers)), device, compute), layers)
            for shape, layers in members.items()
        ]
        if len(made) == 1 and len(made[0][1]) == len(self.rules):
            return made[0][0]
        places = {layer: (one, number) for one, layers in made for number, layer in enumerate(layers)}
        return LayeredStorage([places[own_layer(self.rules, layer)] for layer in range(len(self.rules))])


def own_layer(rules: Sequence[LayerAttention], layer: int) -> int:
    """The layer whose keys and values `layer` reads: itself, unless it has none of its own.

    Raises ModelError where that one has none either.
    """
    source = rules[layer].kv_from
    if source is None:
        return layer
    if not 0 <= source < layer or rules[source].kv_from is not None:
        raise ModelError(
            f"layer {layer} reads the keys and values of layer {source} (`kv_from`), which must be an "
            "earlier layer that has its own"
        )
    return source


class LayeredStorage(Storage):
    """Keys and values of layers of several shapes: one storage for each shape."""

    def __init__(self, places: Sequence[tuple[Storage, int]]) -> None:
        """places: by layer, its storage and its number there; layers may have the same."""
        self._places = places
        storages = dict.fromkeys(storage for storage, _ in places)
        self._tensors = [tensor for storage in storages for tensor in storage.tensors]

    @property
    def tensors(self) -> Sequence[Tensor]:
        return self._tensors

    def write(self, layer: int, slots: Tensor, k: Tensor, v: Tensor | None) -> None:
        storage, number = self._places[layer]
        storage.write(number, slots, k, v)

    def read(self, layer: int, where: Tensor | slice) -> tuple[Tensor, Tensor]:
        storage, number = self._places[layer]
        return storage.read(number, where)

    def stored(self, layer: int) -> tuple[StoredVectors, StoredVectors]:
        storage, number = self._places[layer]
        return storage.stored(number)

    def place(self, layer: int) -> tuple[Storage, int]:
        return self._places[layer]


def make_storage(stored: KVDtype, shape: PoolShape, device: torch.device, compute: torch.dtype) -> Storage:
    """The storage for a dtype. compute: the dtype of keys and values as they are written and read."""
    if stored == "int8":
        return Int8Storage(shape, device, compute)
    if stored == "fp8":
        return Fp8Storage(shape, device, compute)
    return PlainStorage(shape, device, compute, compute if stored == "auto" else torch.bfloat16)
