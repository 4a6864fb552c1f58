"""The index of a checkpoint: which tensor of its files goes where in a model, and how to read it."""

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
from turnout.models.checkpoints.parameter_slots import ParameterSlot
from turnout.models.checkpoints.tensor_files import open_tensors

__all__ = [
    "CheckpointIndex",
    "QuantizedLayer",
    "TensorEntry",
    "index_checkpoint",
    "read_tensor",
    "read_unconverted",
]

FLOATS = (torch.float32, torch.float16, torch.bfloat16, torch.float64)


@dataclass(frozen=True)
class TensorEntry:
    """A tensor in a file, called `name` in the model and `key` in the checkpoint."""

    name: str
    key: str
    file: Path


@dataclass
class QuantizedLayer:
    """A layer that is stored quantized."""

    name: str
    parts: dict[str, TensorEntry] = field(default_factory=dict)
    """Its tensors, by the last part of their names."""


@dataclass(frozen=True)
class CheckpointIndex:
    """What to read of a checkpoint."""

    units: list[TensorEntry | QuantizedLayer]
    """In the order in which they lie on disk."""
    quantized: Mapping[str, QuantizedLayer]
    """The layers that are stored quantized, by name."""


def index_checkpoint(
    folder: Path, family: ModelFamily, slots: Mapping[str, ParameterSlot], adoptable: Mapping[str, nn.Linear]
) -> CheckpointIndex:
    """Find one tensor for each parameter, or all tensors of a layer that is stored quantized.

    adoptable: the layers that may be stored quantized, by name. Raises ModelError, naming tensor and file,
    where a tensor is missing, unknown or there twice.
    """
    listed = [entry for file in weight_files(folder) for entry in _listed(file, family)]
    quantized = {
        layer: QuantizedLayer(layer)
        for entry in listed
        if entry.name not in slots and (layer := entry.name.rpartition(".")[0]) in adoptable
    }
    units: dict[str, TensorEntry | QuantizedLayer] = {}
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
    return CheckpointIndex(list(units.values()), quantized)


def read_tensor(entry: TensorEntry, slot: ParameterSlot, device: torch.device, dtype: torch.dtype) -> Tensor:
    """Read a tensor into memory of its own, on the device where it stays.

    Not a view of the mapped file: the process would die at its next access if the file were truncated. The
    file is opened for each tensor, because the pages of a mapped file count as this process's memory.
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


def read_unconverted(entry: TensorEntry, device: torch.device) -> Tensor:
    """Read a tensor in the dtype and shape in which it is stored."""
    with open_tensors(entry.file) as tensors:
        mapped: Tensor = tensors.get_tensor(entry.key)
        return mapped.to(device, copy=True)


def _listed(file: Path, family: ModelFamily) -> Iterator[TensorEntry]:
    with open_tensors(file) as tensors:
        keys = tensors.offset_keys()
    for key in keys:
        name = family.rename(key)
        if name is not None:
            yield TensorEntry(name, key, file)


def _slot_of(entry: TensorEntry, slots: Mapping[str, ParameterSlot]) -> ParameterSlot:
    slot = slots.get(entry.name)
    if slot is None:
        raise ModelError(f"{entry.file} holds the tensor {entry.key!r}, which the model has no place for")
    return slot


def _add_once(entries: dict[str, Any], name: str, entry: TensorEntry) -> None:
    if name in entries:
        raise ModelError(f"{entry.file} holds the tensor {entry.key!r} a second time")
    entries[name] = entry


def _check_complete(folder: Path, found: Iterable[str], slots: Iterable[ParameterSlot]) -> None:
    missing = sorted({slot.name for slot in slots} - set(found))
    if missing:
        more = f" and {len(missing) - 1} more" if len(missing) > 1 else ""
        raise ModelError(f"{folder} lacks the tensor {missing[0]!r}{more}, which config.json asks for")
