"""Weights from safetensors into a model, one tensor at a time.

Peak memory is the final weights and one tensor: the module is built without storage, each tensor is
copied from its file to where it will stay, and the file is unmapped again before the next one.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor, nn
from tqdm import tqdm

from turnout.core.errors import ModelError, blaming
from turnout.core.interfaces import Adopter, ModelFamily, Quantizer
from turnout.core.model import ModelSpec
from turnout.kernels import FusedKernels, Kernels
from turnout.models.checkpoint import weight_files
from turnout.models.cut_short import lost_tensors
from turnout.models.heap import FreedMemory
from turnout.models.native import adopt, pack_complete, pack_rest
from turnout.models.native_stack import join_layers
from turnout.models.packed import PackedEmbedding, RowSource
from turnout.models.width_check import WidthCheck

__all__ = ["count_parameters", "load_model"]

POINTER = b"version https://git-lfs"

FLOATS = (torch.float32, torch.float16, torch.bfloat16, torch.float64)


def load_model(
    folder: Path,
    family: ModelFamily,
    spec: ModelSpec,
    *,
    device: torch.device,
    dtype: torch.dtype,
    quantizer: Quantizer | Adopter | None = None,
    kernels: FusedKernels | None = None,
    progress: bool = True,
) -> nn.Module:
    """Build the family's module and fill it from the checkpoint in `folder`.

    Linear layers that a quantizer wants are converted as soon as their weights are complete; those that are
    stored quantized are built by an adopter. With `kernels` the shared layers compute by them, and other
    linear layers are packed for them, as soon as that can be. Raises ModelError, naming tensor and file,
    unless the checkpoint holds exactly the model's tensors.
    """
    adopter = quantizer if isinstance(quantizer, Adopter) else None
    with torch.device("meta"):
        module = family.build(spec)
    if kernels is not None:
        adopt(module, kernels)
        if isinstance(kernels, Kernels):
            join_layers(module, kernels)
    slots = _slots(module)
    stored = _stored(folder, family, slots, _linear(module) if adopter else {})
    if quantizer is not None:
        quantizer.kernels = kernels if isinstance(kernels, Kernels) else None
    freed, widths = FreedMemory(), WidthCheck(device, dtype)
    # tqdm stays silent on its own (disable=None) where stderr is not a terminal.
    for unit in tqdm(stored.units, desc="loading weights", unit="tensor", disable=None if progress else True):
        if isinstance(unit, _Packed):
            assert adopter is not None
            freed.add(_adopt(module, unit, adopter, device, dtype, widths))
            if kernels is not None:
                pack_complete(module, [unit.layer], kernels)
            continue
        slot = slots[unit.name]
        _fill(module, slot, _read(unit, slot, device, dtype), stored.packed)
        if isinstance(quantizer, Quantizer) and _convert_complete(module, slot, quantizer, dtype, widths):
            freed.add(slot.shape.numel() * dtype.itemsize)
        if kernels is not None:
            pack_complete(module, slot.layers, kernels)
    if kernels is not None:
        pack_rest(module, kernels)
    freed.give_back()
    _place_buffers(module, device)
    return module.eval()


def count_parameters(family: ModelFamily, spec: ModelSpec) -> int:
    """Of the model as its family builds it, whatever it is packed or quantized into."""
    with torch.device("meta"):
        return sum(parameter.numel() for parameter in family.build(spec).parameters())


# ------------------------------------------------------------------ where tensors go


@dataclass(frozen=True)
class _Slot:
    """A parameter and all its dotted names: tied layers share one. Known by the first of them.

    Names and not layers, which would live on here after a quantizer replaced them.
    """

    names: tuple[str, ...]
    shape: torch.Size

    @property
    def name(self) -> str:
        return self.names[0]

    @property
    def layers(self) -> list[str]:
        return [name.rpartition(".")[0] for name in self.names]


def _slots(module: nn.Module) -> dict[str, _Slot]:
    """The slot behind every parameter name."""
    names: dict[nn.Parameter, list[str]] = {}
    for name, parameter in module.named_parameters(remove_duplicate=False):
        names.setdefault(parameter, []).append(name)
    slots: dict[str, _Slot] = {}
    for parameter, known in names.items():
        slots.update(dict.fromkeys(known, _Slot(tuple(known), parameter.shape)))
    return slots


def _fill(module: nn.Module, slot: _Slot, value: Tensor, packed: Mapping[str, _Packed]) -> None:
    parameter = nn.Parameter(value, requires_grad=False)
    for name in slot.names:
        layer, _, attribute = name.rpartition(".")
        if layer not in packed:
            setattr(module.get_submodule(layer), attribute, parameter)


def _linear(module: nn.Module) -> dict[str, nn.Linear]:
    return {name: layer for name, layer in module.named_modules() if isinstance(layer, nn.Linear)}


def _adopt(
    module: nn.Module,
    packed: _Packed,
    adopter: Adopter,
    device: torch.device,
    dtype: torch.dtype,
    widths: WidthCheck,
) -> int:
    """Put a layer in place that is stored quantized; returns the bytes that were read for it."""
    tensors = {part: _read_as_it_is(entry, device) for part, entry in packed.parts.items()}
    if "bias" in tensors:
        tensors["bias"] = tensors["bias"].to(dtype)
    like = module.get_submodule(packed.layer)
    assert isinstance(like, nn.Linear)
    with blaming(f"{type(adopter).__name__} on {packed.layer}"):
        made = adopter.adopt(packed.layer, tensors, like)
        module.set_submodule(packed.layer, widths.checked(made, like))
    return sum(tensor.nbytes for tensor in tensors.values())


def _convert_complete(
    module: nn.Module, slot: _Slot, quantizer: Quantizer, dtype: torch.dtype, widths: WidthCheck
) -> bool:
    """Replace the layers that `slot` completed, where the quantizer wants to; were there any?"""
    converted = False
    for name in slot.layers:
        layer = module.get_submodule(name)
        if not isinstance(layer, nn.Linear) or any(value.is_meta for value in layer.parameters()):
            continue
        with blaming(f"quantizer {type(quantizer).__name__} on {name}"):
            if quantizer.wants(name, layer):
                made = quantizer.convert_named(name, layer)
                module.set_submodule(name, widths.checked(made, layer))
                converted = True
    return _convert_embedding(module, slot, quantizer, dtype) or converted


def _convert_embedding(module: nn.Module, slot: _Slot, quantizer: Quantizer, dtype: torch.dtype) -> bool:
    """The embedding reads what the head that it is tied to has become, where it can."""
    layers = {name: module.get_submodule(name) for name in slot.layers}
    head = next((layer for layer in layers.values() if isinstance(layer, RowSource)), None)
    for name, layer in layers.items():
        if isinstance(layer, nn.Embedding) and quantizer.wants_embedding(name):
            with blaming(f"quantizer {type(quantizer).__name__} on {name}"):
                shared = None if head is None else PackedEmbedding(head, dtype)
                module.set_submodule(name, shared or quantizer.convert_embedding(layer))
            return True
    return False


def _place_buffers(module: nn.Module, device: torch.device) -> None:
    """Buffers follow from the config and are built on the CPU; they keep their own dtype."""
    for path, owner in module.named_modules():
        for name, buffer in owner.named_buffers(recurse=False):
            if buffer.is_meta:
                raise ModelError(
                    f"the buffer {path}.{name} has no values; a family must create its buffers on an "
                    "explicit device"
                )
            setattr(owner, name, buffer.to(device))


# ------------------------------------------------------------------ what the files hold


@dataclass(frozen=True)
class _Entry:
    """A tensor in a file: `name` in the model, `key` in the checkpoint."""

    name: str
    key: str
    file: Path


@dataclass
class _Packed:
    """A layer that is stored quantized: its entries by the last part of their names."""

    layer: str
    parts: dict[str, _Entry] = field(default_factory=dict)


@dataclass(frozen=True)
class _Stored:
    """What to read, in the order it lies on disk."""

    units: list[_Entry | _Packed]
    packed: Mapping[str, _Packed]
    """By layer."""


def _stored(
    folder: Path, family: ModelFamily, slots: dict[str, _Slot], packable: Mapping[str, nn.Linear]
) -> _Stored:
    """Exactly one entry for each slot, but all there are for layers of `packable` that are quantized."""
    listed = [entry for file in weight_files(folder) for entry in _listed(file, family)]
    packed = {
        layer: _Packed(layer)
        for entry in listed
        if entry.name not in slots and (layer := entry.name.rpartition(".")[0]) in packable
    }
    units: dict[str, _Entry | _Packed] = {}
    for entry in listed:
        layer, _, part = entry.name.rpartition(".")
        if layer in packed:
            _add_once(packed[layer].parts, part, entry)
            units[layer] = packed[layer]
        elif _slot_of(entry, slots).name == entry.name:  # else the copy of a tied tensor
            _add_once(units, entry.name, entry)
    _check_complete(
        folder, units.keys(), (slot for slot in slots.values() if set(slot.layers) - packed.keys())
    )
    return _Stored(list(units.values()), packed)


def _slot_of(entry: _Entry, slots: Mapping[str, _Slot]) -> _Slot:
    slot = slots.get(entry.name)
    if slot is None:
        raise ModelError(f"{entry.file} holds the tensor {entry.key!r}, which the model has no place for")
    return slot


def _add_once(entries: dict[str, Any], name: str, entry: _Entry) -> None:
    if name in entries:
        raise ModelError(f"{entry.file} holds the tensor {entry.key!r} a second time")
    entries[name] = entry


def _check_complete(folder: Path, found: Iterable[str], slots: Iterable[_Slot]) -> None:
    missing = sorted({slot.name for slot in slots} - set(found))
    if missing:
        more = f" and {len(missing) - 1} more" if len(missing) > 1 else ""
        raise ModelError(f"{folder} lacks the tensor {missing[0]!r}{more}, which config.json asks for")


def _listed(file: Path, family: ModelFamily) -> Iterator[_Entry]:
    with _open(file) as tensors:
        keys = tensors.offset_keys()
    for key in keys:
        name = family.rename(key)
        if name is not None:
            yield _Entry(name, key, file)


def _read(entry: _Entry, slot: _Slot, device: torch.device, dtype: torch.dtype) -> Tensor:
    """A tensor's own copy, where it will stay.

    Not a view of the mapped file, which would die with the process when the file is cut short. And the
    file is opened anew for each tensor, because its pages count as ours for as long as it is mapped.
    """
    with _open(entry.file) as tensors:
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


def _read_as_it_is(entry: _Entry, device: torch.device) -> Tensor:
    with _open(entry.file) as tensors:
        mapped: Tensor = tensors.get_tensor(entry.key)
        return mapped.to(device, copy=True)


def _open(file: Path) -> Any:
    try:
        return safe_open(file, framework="pt")
    except (SafetensorError, OSError) as error:
        if not os.access(file, os.R_OK):  # which safetensors takes for a file that is not there
            raise ModelError(f"{file} may not be read by this user; change its mode or owner") from error
        if _is_pointer(file):
            raise ModelError(f"{file} only says where Git LFS has the weights; run: git lfs pull") from error
        why = _lost(lost_tensors(file)) or f"damaged or cut short ({error})"
        raise ModelError(f"{file} is {why}; fetch it again") from error


def _is_pointer(file: Path) -> bool:
    """What a clone without Git LFS leaves in a file's place."""
    with file.open("rb") as content:
        return content.read(len(POINTER)) == POINTER


def _lost(names: list[str]) -> str:
    more = f", before {len(names) - 1} more" if len(names) > 1 else ""
    return f"cut short in the tensor {names[0]!r}{more}" if names else ""
