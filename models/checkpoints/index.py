"""What a checkpoint's files hold for a model: which tensor goes where, and reading them one by one."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from turnout.core.errors import ModelError
from turnout.core.interfaces.models import ModelFamily
from turnout.models.checkpoints.checkpoint import weight_files
from turnout.models.checkpoints.slots import Slot
from turnout.models.checkpoints.tensor_files import open_tensors

__all__ = ["Entry", "Stored", "StoredLayer", "find_stored", "read", "read_as_it_is"]

FLOATS = (torch.float32, torch.float16, torch.bfloat16, torch.float64)


@dataclass(frozen=True)
class Entry:
    """A tensor in a file: `name` in the model, `key` in the checkpoint."""

    name: str
    key: str
    file: Path


@dataclass
class StoredLayer:
    """A layer that is stored quantized: its entries by the last part of their names."""

    name: str
    parts: dict[str, Entry] = field(default_factory=dict)


@dataclass(frozen=True)
class Stored:
    """What to read, in the order it lies on disk."""

    units: list[Entry | StoredLayer]
    quantized: Mapping[str, StoredLayer]
    """By layer."""


def find_stored(
    folder: Path, family: ModelFamily, slots: Mapping[str, Slot], adoptable: Mapping[str, nn.Linear]
) -> Stored:
    """Exactly one entry for each slot, but all there are for layers of `adoptable` that are quantized.

    Raises ModelError, naming tensor and file, where that is not what the files hold.
    """
    listed = [entry for file in weight_files(folder) for entry in _listed(file, family)]
    quantized = {
        layer: StoredLayer(layer)
        for entry in listed
        if entry.name not in slots and (layer := entry.name.rpartition(".")[0]) in adoptable
    }
    units: dict[str, Entry | StoredLayer] = {}
    for entry in listed:
        layer, _, part = entry.name.rpartition(".")
        if layer in quantized:
            _add_once(quantized[layer].parts, part, entry)
            units[layer] = quantized[layer]
        elif _slot_of(entry, slots).name == entry.name:  # else the copy of a tied tensor
            _add_once(units, entry.name, entry)
    _check_complete(
        folder, units.keys(), (slot for slot in slots.values() if set(slot.layers) - quantized.keys())
    )
    return Stored(list(units.values()), quantized)


def read(entry: Entry, slot: Slot, device: torch.device, dtype: torch.dtype) -> Tensor:
    """A tensor's own copy, where it will stay.

    Not a view of the mapped file, which would die with the process when the file is cut short. And the
    file is opened anew for each tensor, because its pages count as ours for as long as it is mapped.
    """
    with open_tensors(entry.file) as tensors:
        shape = torch.Size(tensors.get_slice(entry.key).get_shape())
        if shape != slot.shape:
            raise ModelError(
                f"{entry.file}: {entry.key!r} has shape {list(shape)}, "
                f"config.json asks for {list(slot.shape)}"
            )
        mapped: Tensor = tensors.get_tensor(entry.key)
        if mapped.dtype not in FLOATS:
            raise ModelError(
                f"{entry.file}: {entry.key!r} is {mapped.dtype}, a floating point type is expected, or "
                "scales beside it and a quantization_config in config.json"
            )
        return mapped.to(device=device, dtype=dtype, copy=True)


def read_as_it_is(entry: Entry, device: torch.device) -> Tensor:
    with open_tensors(entry.file) as tensors:
        mapped: Tensor = tensors.get_tensor(entry.key)
        return mapped.to(device, copy=True)


def _listed(file: Path, family: ModelFamily) -> Iterator[Entry]:
    with open_tensors(file) as tensors:
        keys = tensors.offset_keys()
    for key in keys:
        name = family.rename(key)
        if name is not None:
            yield Entry(name, key, file)


def _slot_of(entry: Entry, slots: Mapping[str, Slot]) -> Slot:
    slot = slots.get(entry.name)
    if slot is None:
        raise ModelError(f"{entry.file} holds the tensor {entry.key!r}, which the model has no place for")
    return slot


def _add_once(entries: dict[str, Any], name: str, entry: Entry) -> None:
    if name in entries:
        raise ModelError(f"{entry.file} holds the tensor {entry.key!r} a second time")
    entries[name] = entry


def _check_complete(folder: Path, found: Iterable[str], slots: Iterable[Slot]) -> None:
    missing = sorted({slot.name for slot in slots} - set(found))
    if missing:
        more = f" and {len(missing) - 1} more" if len(missing) > 1 else ""
        raise ModelError(f"{folder} lacks the tensor {missing[0]!r}{more}, which config.json asks for")
