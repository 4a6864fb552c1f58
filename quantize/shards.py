"""Writes a quantized checkpoint's weights, one file after another: an interruption loses one at most."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod
from pathlib import Path
from typing import Any

from safetensors import safe_open
from torch import Tensor
from tqdm import tqdm

from turnout.core.errors import ModelError, as_plugin_errors
from turnout.core.interfaces.models import ModelFamily
from turnout.core.interfaces.quantization import ExportedLayer, Exporter
from turnout.core.plugin_faults import title_of
from turnout.core.types.placement import Placement, placements
from turnout.models.checkpoints.checkpoint import INDEX_FILE, read_config, weight_files
from turnout.models.checkpoints.index import TensorEntry, check_placed
from turnout.models.checkpoints.parameter_slots import ParameterSlot
from turnout.models.checkpoints.readers.formats import open_weights
from turnout.models.checkpoints.readers.reader import WeightFile
from turnout.models.checkpoints.saving import save_tensors
from turnout.models.checkpoints.stored_layers import row_order
from turnout.quantize.selection import LayerSelection
from turnout.quantize.smoothquant import Smoothing
from turnout.runner.checkpoint import Checkpoint

__all__ = ["ShardWriter"]

SHARD_ELEMENTS = 2**27
"""A file ends with the tensor that brings its unquantized elements to this many."""
PLAIN_PARTS = {"weight", "bias"}
"""The tensors of an unquantized linear layer; a layer without others would be loaded as one."""


@dataclass(frozen=True)
class _SourceTensor:
    key: str
    """Its name in the checkpoint that is written: a part that is split off has the module's."""
    source: str
    """Its name in the checkpoint that is read."""
    placement: Placement | None
    """Where it goes in the module; None: nowhere."""
    file: WeightFile
    elements: int

    @property
    def layer(self) -> str:
        """The layer's name in the checkpoint that is written."""
        return self.key.rpartition(".")[0]


@dataclass(frozen=True)
class ShardWriter:
    """Writes the weights of `checkpoint` to `folder`, those of quantized layers as `exporter` stores them."""

    checkpoint: Checkpoint
    exporter: Exporter
    layers: LayerSelection
    slots: Mapping[str, ParameterSlot]
    """The model's parameters."""
    folder: Path
    smoothing: Smoothing | None

    def write(self) -> None:
        """Write the files that are not there yet, their index and config.json."""
        files = open_weights(weight_files(self.checkpoint.folder))
        shards = _shards(files, self.checkpoint.family, keeps_order=self.smoothing is None)
        names = [f"model-{number + 1:05}-of-{len(shards):05}.safetensors" for number in range(len(shards))]
        total = sum(len(shard) for shard in shards)
        with tqdm(total=total, desc="quantizing", unit="tensor", disable=None) as bar:
            for name, shard in zip(names, shards, strict=True):
                if not (self.folder / name).is_file():
                    self._write(self.folder / name, shard, bar)
                else:
                    bar.update(len(shard))
        placed = ((source, source.placement) for shard in shards for source in shard)
        self._finish(names, {_layer_of(to.name): source.layer for source, to in placed if to is not None})

    def _write(self, path: Path, shard: list[_SourceTensor], bar: Any) -> None:
        tensors: dict[str, Tensor] = {}
        schemes: dict[str, str] = {}
        for source in shard:
            value, name = _read(source), source.placement.name if source.placement else ""
            dtype, (layer, _, part) = value.dtype, name.rpartition(".")
            if source.placement is not None and name in self.slots:
                entry = TensorEntry(source.placement, source.source, source.file)
                check_placed(entry, value, self.slots[name].shape)
            if self.smoothing is not None:
                value = self.smoothing.apply(name, value)
            if part == "weight" and layer in self.layers.quantized:
                prefix = source.key.removesuffix("weight")
                with as_plugin_errors(f"{title_of(self.exporter, 'quantization')} on {layer}: export"):
                    exported = _checked(self.exporter.export(layer, value))
                    schemes[source.layer] = json.dumps(exported.scheme)
                tensors |= {prefix + part: tensor.contiguous() for part, tensor in exported.tensors.items()}
            else:
                tensors[source.key] = value.to(dtype)
            bar.update()
        unfinished = path.with_suffix(".unfinished")
        save_tensors(tensors, unfinished, schemes)
        unfinished.rename(path)

    def _finish(self, names: list[str], written: Mapping[str, str]) -> None:
        """Write index and config from the files' metadata: an earlier run may have written some of them.

        written: the name of each of the module's layers in the checkpoint that is written.
        """
        weight_map: dict[str, str] = {}
        schemes: dict[str, Mapping[str, object]] = {}
        quantized = {written[layer] for layer in self.layers.quantized & written.keys()}
        for name in names:
            with safe_open(self.folder / name, framework="pt") as file:
                weight_map.update(dict.fromkeys(file.keys(), name))
                metadata: dict[str, str] = file.metadata() or {}
            for layer in sorted(quantized & metadata.keys()):
                schemes[layer] = json.loads(metadata[layer])
        size = sum((self.folder / name).stat().st_size for name in names)
        _write_json(self.folder / INDEX_FILE, {"metadata": {"total_size": size}, "weight_map": weight_map})
        with as_plugin_errors(f"{title_of(self.exporter, 'quantization')}: config"):
            unquantized = sorted(written.get(layer, layer) for layer in self.layers.unquantized)
            stated = self.exporter.config(schemes, unquantized)
            quantization = {"quant_method": self.exporter.quant_method, **stated}
            config = {**read_config(self.checkpoint.folder), "quantization_config": quantization}
            _write_json(self.folder / "config.json", config)


def _checked(exported: object) -> ExportedLayer:
    if not isinstance(exported, ExportedLayer):
        raise TypeError(f"export returned {exported!r}; expected an ExportedLayer")
    parts = exported.tensors.keys()
    if wrong := [part for part in parts if not part or "." in part or part == "bias"]:
        raise ValueError(
            f"a tensor is called {wrong[0]!r}; expected the last part of a name, such as 'weight_scale', and "
            "no bias, which is stored as it is"
        )
    if not parts - PLAIN_PARTS:
        raise ValueError(
            f"its tensors are {sorted(parts)}; expected one called neither 'weight' nor 'bias', by which "
            "loading knows the layer as a quantized one"
        )
    return exported


def _layer_of(tensor: str) -> str:
    return tensor.rpartition(".")[0]


def _shards(
    files: Iterable[WeightFile], family: ModelFamily, *, keeps_order: bool
) -> list[list[_SourceTensor]]:
    """Consecutive tensors of `SHARD_ELEMENTS` or a little more. keeps_order: as of `_tensors_in`."""
    shards: list[list[_SourceTensor]] = [[]]
    for source in (source for file in files for source in _tensors_in(file, family, keeps_order)):
        if sum(each.elements for each in shards[-1]) >= SHARD_ELEMENTS:
            shards.append([])
        shards[-1].append(source)
    return shards


def _tensors_in(file: WeightFile, family: ModelFamily, keeps_order: bool) -> Iterator[_SourceTensor]:
    """keeps_order: rows that the family reads in another order are written as they are stored."""
    for key in file.names():
        shape = file.shape(key)
        size, found = prod(shape), placements(family.rename(key))
        if not found:
            yield _SourceTensor(key, key, None, file, size)
        elif keeps_order and _is_reordered(found, shape):
            yield _SourceTensor(key, key, Placement(found[0].name), file, size)
            continue
        for placement in found:
            written = _written(key, placement, family)
            yield _SourceTensor(written, key, placement, file, size // len(found))


def _is_reordered(found: Sequence[Placement], shape: Sequence[int]) -> bool:
    """Says whether a tensor goes to one place whole, with its rows in another order."""
    change = found[0].change
    if len(found) > 1 or change is None or not replace(found[0], change=None).whole:
        return False
    return len(shape) != 2 or row_order(change, shape[0]) is not None


def _written(key: str, placement: Placement, family: ModelFamily) -> str:
    """The name under which a tensor is written. Raises ModelError for one that could not be read again."""
    if placement.whole:
        return key
    if placement.into or placements(family.rename(placement.name)) != (Placement(placement.name),):
        raise ModelError(
            f"{key!r} cannot be written quantized: {title_of(family, 'model')} makes {placement.name!r} of "
            "it, which it would not read again; choose --quantization at turnout serve instead"
        )
    return placement.name


def _read(source: _SourceTensor) -> Tensor:
    """A copy: the pages of a mapped file count as this process's memory."""
    take = source.placement.take if source.placement else ()
    with source.file.read(source.source, take) as value:
        return (source.placement.of(value) if source.placement else value).clone()


def _write_json(path: Path, value: object) -> None:
    path.write_text(json.dumps(value, indent=2) + "\n", encoding="utf-8")
