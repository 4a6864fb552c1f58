"""The index of a checkpoint: which tensor of its files goes where in a model, and how to read it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from turnout.core.errors import ModelError, Unsupported, as_plugin_errors, describe_error
from turnout.core.interfaces.models import ModelFamily
from turnout.core.plugin_faults import title_of
from turnout.core.types.placement import Placement, placements
from turnout.models.checkpoints.checkpoint import indexed_files, weight_files
from turnout.models.checkpoints.parameter_slots import ParameterSlot
from turnout.models.checkpoints.readers.formats import open_weights
from turnout.models.checkpoints.readers.reader import WeightFile
from turnout.models.gguf.given import given_name

__all__ = [
    "UNQUANTIZED",
    "CheckpointIndex",
    "QuantizedLayer",
    "TensorEntry",
    "check_placed",
    "index_checkpoint",
    "read_tensor",
    "read_unconverted",
]

FLOATS = (torch.float32, torch.float16, torch.bfloat16, torch.float64)
UNQUANTIZED = "take the unquantized checkpoint, and --quantization"


@dataclass(frozen=True)
class TensorEntry:
    """A tensor of a file, or a part of one, and its place in the model."""

    placement: Placement
    key: str
    """Its name in the checkpoint."""
    file: WeightFile
    blocks: str = ""
    """The blocks in which a quantized layer takes it as it is stored."""

    @property
    def name(self) -> str:
        """The model's tensor, all or a part of which it fills; with `blocks`, a name beside it."""
        name = self.placement.name
        return f"{name.rpartition('.')[0]}.{self.blocks}" if self.blocks else name

    @property
    def described(self) -> str:
        return f"{self.file.path}: {self.file.stored_name(self.key)!r}"


@dataclass
class QuantizedLayer:
    """A layer that is stored quantized."""

    name: str
    parts: dict[str, TensorEntry] = field(default_factory=dict)
    """Its tensors, by the last part of their names."""
    tied: tuple[str, ...] = ()
    """The other layers that have its weight, and none of their own in the checkpoint."""
    change: Callable[[Tensor], Tensor] | None = None
    """What the family changes of its weight, which is stored quantized; None: nothing."""

    @property
    def stored_name(self) -> str:
        """Its name in the checkpoint; where its tensors are parts of others, the model's."""
        entry = next(iter(self.parts.values()))
        whole = entry.placement.whole and not entry.blocks
        return entry.key.rpartition(".")[0] if whole else self.name

    def add(self, part: str, entry: TensorEntry) -> None:
        """Adds a tensor. Raises Unsupported for one that does not go to this layer alone."""
        placement = entry.placement
        if placement.change is not None and not (placement.take or placement.transposed or placement.into):
            self.change = placement.change
            entry = replace(entry, placement=Placement(placement.name))
        _add_once(self.parts, part, _checked_part(entry, part))


@dataclass(frozen=True)
class CheckpointIndex:
    """What to read of a checkpoint."""

    units: list[TensorEntry | QuantizedLayer]
    """In the order in which they lie on disk."""
    quantized: Mapping[str, QuantizedLayer]
    """The layers that are stored quantized, by name."""
    ignored: list[str]
    """Tensors that are not read."""


def index_checkpoint(
    folder: Path,
    family: ModelFamily,
    slots: Mapping[str, ParameterSlot],
    adoptable: Mapping[str, nn.Module],
    held: Collection[str] = (),
    elsewhere: Collection[str] = (),
    ignored: Collection[str] = (),
) -> CheckpointIndex:
    """Find one tensor for each parameter, or all tensors of a layer that is stored quantized.

    adoptable: the layers that may be stored quantized, by name; held: the kinds of blocks in which they take
    weights; elsewhere: layers that are left to other ranks; ignored: how names of tensors end that are not
    read unless the model has them, in whole parts. Raises ModelError, naming tensor and file, where a tensor
    is missing, unknown or there twice; Unsupported where one is stored quantized, for which the model has no
    such layer.
    """
    title = title_of(family, "model")
    files, indexed = open_weights(weight_files(folder)), indexed_files(folder)
    listed = [
        entry
        for file in files
        for entry in _listed(file, family, title, adoptable, held)
        if indexed.get(entry.key, file.path.name) == file.path.name  # the index decides between two copies
        and entry.name.rpartition(".")[0] not in elsewhere
    ]
    ends = tuple(f".{end}" for end in ignored)
    unread = {entry.key for entry in listed if entry.name not in slots and entry.name.endswith(ends)}
    listed = [entry for entry in listed if entry.key not in unread]
    quantized = {
        layer: QuantizedLayer(layer)
        for entry in listed
        if entry.name not in slots and (layer := entry.name.rpartition(".")[0]) in adoptable
    }
    plain = {entry.name for entry in listed if entry.name.rpartition(".")[0] not in quantized}
    for name, stored in quantized.items():
        slot = slots.get(f"{name}.weight")
        others = [layer for layer in slot.layers if layer != name] if slot else []
        stored.tied = tuple(layer for layer in others if f"{layer}.weight" not in plain)
    units: dict[tuple[str, str], TensorEntry | QuantizedLayer] = {}
    tied: list[TensorEntry] = []
    for entry in listed:
        layer, _, part = entry.name.rpartition(".")
        if layer in quantized:
            quantized[layer].add(part, entry)
            units[layer, ""] = quantized[layer]
        elif _slot_of(entry, slots, adopts=bool(adoptable)).name == entry.name:
            _add_once(units, (entry.name, str(entry.placement.into)), entry)
        else:
            tied.append(entry)
    found = {name for name, _ in units}
    for entry in tied:  # the copy of a tied tensor is read if the tensor itself is not there
        if (name := slots[entry.name].name) not in found:
            units.setdefault((name, str(entry.placement.into)), entry)
    found |= {name for name, _ in units}
    covered = {layer for name, stored in quantized.items() for layer in (name, *stored.tied)}
    needed = (slot for slot in slots.values() if set(slot.layers) - covered)
    _check_complete(folder, files[0].configuration, found, needed)
    return CheckpointIndex(list(units.values()), quantized, sorted(unread))


def read_tensor(entry: TensorEntry, shape: torch.Size, device: torch.device, dtype: torch.dtype) -> Tensor:
    """Read what an entry places, of that shape, into memory of its own, on the device where it stays."""
    with _placed(entry) as (_, placed):
        check_placed(entry, placed, shape)
        return torch.empty(shape, device=device, dtype=dtype).copy_(placed)


def check_placed(entry: TensorEntry, placed: Tensor, shape: torch.Size) -> None:
    """Raises ModelError unless what an entry places has that shape, and is of floating-point numbers."""
    if placed.shape != shape:
        raise ModelError(
            f"{entry.described} has shape {list(entry.file.shape(entry.key))}"
            f"{'' if entry.placement.whole else f', of which {list(placed.shape)} is placed'}, "
            f"{entry.file.configuration} asks for {list(shape)}"
        )
    if placed.dtype not in FLOATS:
        raise ModelError(
            f"{entry.described} is {placed.dtype}, a floating point type is expected, or "
            "scales beside it and a quantization_config in config.json"
        )


def read_unconverted(entry: TensorEntry, device: torch.device) -> Tensor:
    """Read what an entry places, in the dtype in which it is stored."""
    if entry.blocks:
        return entry.file.read_blocks(entry.key, entry.placement.take).to(device)
    with _placed(entry) as (_, placed):
        return placed.to(device, copy=True)


@contextmanager
def _placed(entry: TensorEntry) -> Iterator[tuple[Tensor, Tensor]]:
    """Yields what is read of an entry's tensor, and what is placed of it.

    Raises ModelError where the tensor is too small, or has too few dimensions, for what is taken or changed.
    """
    with ExitStack() as reading:
        try:
            stored = reading.enter_context(entry.file.read(entry.key, entry.placement.take))
            placed = entry.placement.of(stored)
        except (IndexError, RuntimeError) as error:
            raise ModelError(
                f"{entry.described} has shape {list(entry.file.shape(entry.key))}, which does not fit what "
                f"{entry.file.configuration} asks for {entry.name!r}: {describe_error(error)}"
            ) from error
        yield stored, placed


def _listed(
    file: WeightFile,
    family: ModelFamily,
    title: str,
    adoptable: Mapping[str, nn.Module],
    held: Collection[str],
) -> Iterator[TensorEntry]:
    for key in file.names():
        with as_plugin_errors(f"{title}: rename of {key}"):
            placed = placements(family.rename(key))
        _check_experts(file, key, placed)
        blocks = (file.blocks(key) if held else None) or ""
        blocks = blocks if blocks in held else ""
        rows = len(file.shape(key)) - 1 if blocks else 0
        for placement in placed:
            layer, _, part = placement.name.rpartition(".")
            fits = placement.takes_rows(rows) and layer in adoptable and part == "weight"
            yield TensorEntry(placement, key, file, blocks if fits else "")


def _check_experts(file: WeightFile, key: str, placed: Collection[Placement]) -> None:
    """Raises ModelError for a tensor of all experts, of which each is placed, that has more or fewer."""
    firsts = (next(iter(placement.take), None) for placement in placed)
    numbers = {first for first in firsts if isinstance(first, int)}
    if numbers and numbers == set(range(len(numbers))) and file.shape(key)[:1] != (len(numbers),):
        raise ModelError(
            f"{file.path}: {file.stored_name(key)!r} has shape {list(file.shape(key))}, {file.configuration} "
            f"asks for {len(numbers)} of its first dimension"
        )


def _checked_part(entry: TensorEntry, part: str) -> TensorEntry:
    """Raises Unsupported unless a part of a layer that is stored quantized stays as it is, or is its bias."""
    if not (entry.placement.whole or entry.blocks or (part == "bias" and not entry.placement.into)):
        raise Unsupported(
            f"{entry.described} is stored quantized, and goes to several layers or is turned around, which "
            f"only weights that are not quantized can; {UNQUANTIZED}"
        )
    return entry


def _slot_of(entry: TensorEntry, slots: Mapping[str, ParameterSlot], *, adopts: bool) -> ParameterSlot:
    """adopts: the checkpoint says that it has layers that are stored quantized."""
    slot = slots.get(entry.name)
    if slot is None:
        name = entry.file.stored_name(entry.key)
        said = f"{entry.file.path} holds the tensor {name!r:.200}, which the model has no place for"
        if adopts and name.rpartition(".")[2] not in ("weight", "bias"):
            raise Unsupported(f"{said}: it has no linear layer there that is stored quantized; {UNQUANTIZED}")
        raise ModelError(said)
    return slot


def _add_once(entries: dict[Any, Any], name: object, entry: TensorEntry) -> None:
    if name in entries:
        raise ModelError(f"{entry.file.path} holds the tensor {entry.key!r} a second time")
    entries[name] = entry


def _check_complete(
    folder: Path, configuration: str, found: Iterable[str], slots: Iterable[ParameterSlot]
) -> None:
    missing = sorted({slot.name for slot in slots} - set(found))
    if missing:
        more = f" and {len(missing) - 1} more" if len(missing) > 1 else ""
        raise ModelError(
            f"{given_name(folder)} lacks the tensor {missing[0]!r}{more}, which {configuration} asks for"
        )
