"""A quantized checkpoint's weights, a file after the other: an interruption loses one at most."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

from safetensors import safe_open
from torch import Tensor
from tqdm import tqdm

from turnout.core.errors import blaming
from turnout.models.blueprint import blueprint, linear_layers
from turnout.models.checkpoints.checkpoint import INDEX_FILE, read_config, weight_files
from turnout.models.checkpoints.saving import save_tensors
from turnout.models.checkpoints.tensor_files import open_tensors
from turnout.plugins.quantization.schemes.scheme import LinearScheme
from turnout.quantize.smoothquant import Smoothing
from turnout.runner.checkpoint import Checkpoint

__all__ = ["Pieces"]

PIECE = 2**27
"""Numbers of unquantized tensors in a file, or a tensor's more."""


@dataclass(frozen=True)
class _Entry:
    key: str
    file: Path
    size: int
    """Numbers in it."""


@dataclass(frozen=True)
class Pieces:
    """Those of a checkpoint, to be written to `folder`."""

    checkpoint: Checkpoint
    scheme: LinearScheme
    folder: Path
    smoothing: Smoothing | None

    def write(self) -> int:
        """All that are not there yet, index and config; returns how many layers are quantized."""
        linear = linear_layers(blueprint(self.checkpoint.family, self.checkpoint.spec))
        pieces = _pieces(weight_files(self.checkpoint.folder))
        wanted = {name for name, layer in linear.items() if self.scheme.wants(name, layer)}
        names = [f"model-{number + 1:05}-of-{len(pieces):05}.safetensors" for number in range(len(pieces))]
        total = sum(len(piece) for piece in pieces)
        with tqdm(total=total, desc="quantizing", unit="tensor", disable=None) as bar:
            for name, piece in zip(names, pieces, strict=True):
                if not (self.folder / name).is_file():
                    self._write(self.folder / name, piece, wanted, bar)
                else:
                    bar.update(len(piece))
        self._finish(names, linear.keys() - wanted)
        return len(wanted)

    def _write(self, path: Path, piece: list[_Entry], wanted: set[str], bar: Any) -> None:
        tensors: dict[str, Tensor] = {}
        states: dict[str, str] = {}
        for entry in piece:
            value, name = _read(entry), self.checkpoint.family.rename(entry.key) or ""
            dtype, (layer, _, part) = value.dtype, name.rpartition(".")
            if self.smoothing is not None:
                value = self.smoothing.apply(name, value)
            if part == "weight" and layer in wanted:
                with blaming(f"quantizer {type(self.scheme).__name__} on {layer}"):
                    stored = self.scheme.for_layer(layer).stored(value)
                prefix = entry.key.removesuffix("weight")
                tensors.update(
                    {prefix + name: tensor.contiguous() for name, tensor in stored.tensors.items()}
                )
                scheme = {"weights": stored.weights, "input_activations": stored.activations}
                states[prefix.removesuffix(".")] = json.dumps({**scheme, "format": stored.format})
            else:
                tensors[entry.key] = value.to(dtype)
            bar.update()
        unfinished = path.with_suffix(".unfinished")
        save_tensors(tensors, unfinished, states)
        unfinished.rename(path)

    def _finish(self, names: list[str], ignored: Iterable[str]) -> None:
        """Index and config, from what the pieces say of themselves: some may be of an earlier run."""
        weight_map: dict[str, str] = {}
        layers: dict[str, list[str]] = {}
        for name in names:
            with safe_open(self.folder / name, framework="pt") as file:
                weight_map.update(dict.fromkeys(file.keys(), name))
                for layer, state in (file.metadata() or {}).items():
                    if layer != "format":
                        layers.setdefault(state, []).append(layer)
        size = sum((self.folder / name).stat().st_size for name in names)
        _write_json(self.folder / INDEX_FILE, {"metadata": {"total_size": size}, "weight_map": weight_map})
        config = dict(read_config(self.checkpoint.folder))
        config["quantization_config"] = _quantization_config(layers, sorted(ignored))
        _write_json(self.folder / "config.json", config)


def _quantization_config(layers: Mapping[str, list[str]], ignored: list[str]) -> dict[str, Any]:
    """layers: by their scheme, as JSON."""
    schemes = [json.loads(state) for state in layers]
    formats = {scheme["format"] for scheme in schemes}
    groups = {
        f"group_{number}": {"targets": ["Linear"] if len(schemes) == 1 else sorted(names), **scheme}
        for number, (scheme, names) in enumerate(zip(schemes, layers.values(), strict=True))
    }
    return {
        "quant_method": "compressed-tensors",
        "quantization_status": "compressed",
        "format": formats.pop() if len(formats) == 1 else "mixed-precision",
        "config_groups": groups,
        "ignore": ignored,
    }


def _pieces(files: Iterable[Path]) -> list[list[_Entry]]:
    """Consecutive tensors of `PIECE` numbers or a little more."""
    pieces: list[list[_Entry]] = [[]]
    for entry in (entry for file in files for entry in _entries(file)):
        if sum(each.size for each in pieces[-1]) >= PIECE:
            pieces.append([])
        pieces[-1].append(entry)
    return pieces


def _entries(file: Path) -> list[_Entry]:
    with open_tensors(file) as tensors:
        sizes = {key: prod(tensors.get_slice(key).get_shape()) for key in tensors.offset_keys()}
    return [_Entry(key, file, size) for key, size in sizes.items()]


def _read(entry: _Entry) -> Tensor:
    """A copy of its own: pages of the file count as ours for as long as it is mapped."""
    with open_tensors(entry.file) as tensors:
        value: Tensor = tensors.get_tensor(entry.key)
        return value.clone()


def _write_json(path: Path, value: object) -> None:
    path.write_text(json.dumps(value, indent=2) + "\n", encoding="utf-8")
