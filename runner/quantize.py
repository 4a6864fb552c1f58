"""A checkpoint with quantized weights, written piece by piece.

::

    OUT.partial/   source.json                        what is being quantized, and how
                   model-0000i-of-0000n.safetensors   complete, or not there
    OUT/           all of it, by one rename at the end
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor, nn
from tqdm import tqdm

from turnout.core.errors import ConfigError, ModelError, TurnoutError, blaming
from turnout.core.plugins import Registry
from turnout.models.checkpoint import INDEX_FILE, read_config, weight_files
from turnout.models.saving import save_tensors
from turnout.plugins.quantization.scheme import LinearScheme
from turnout.runner.checkpoint import Checkpoint, open_checkpoint
from turnout.runner.memory import format_bytes
from turnout.runner.smoothing import TOKENS, Calibration, Smoothing, find_smoothing
from turnout.runner.weights import UNQUANTIZED, load_weights
from turnout.text.tokenizer import load_tokenizer

__all__ = ["quantize_checkpoint"]

PIECE_BYTES = 2**29
"""Of unquantized tensors in a file: what an interruption loses at most."""
SOURCE = "source.json"
WEIGHTS = (".safetensors", ".bin", ".pt", ".pth", ".ckpt", ".gguf", ".onnx", ".h5", ".msgpack")
"""Endings of files that hold weights, in whatever format: those are not copied."""


def quantize_checkpoint(
    registry: Registry,
    model: str,
    quantization: str,
    out: Path,
    *,
    revision: str | None,
    force: bool,
    calibration: Calibration | None = None,
) -> str:
    """Write `model` to the folder `out`; returns what to say about it.

    calibration: what to smooth by, beforehand; None: not at all. Raises ConfigError or ModelError, and
    TurnoutError for a full disk; what is done by then is kept, and the next call goes on from there.
    """
    scheme = registry.create("quantization", quantization)
    if not isinstance(scheme, LinearScheme):
        raise ConfigError(
            f"quantization {quantization!r} has no layout to be stored in; choose int8, int4wo, …"
        )
    checkpoint = open_checkpoint(registry, model, revision)
    _check_source(checkpoint, scheme)
    _check_target(checkpoint.folder, out, force)
    partial = out.with_name(f"{out.name}.partial")
    with _resumable(partial):
        _begin(partial, checkpoint.folder, quantization, calibration)
        smoothing = None if calibration is None else _smoothing(registry, checkpoint, calibration)
        written = _Writing(checkpoint, scheme, partial, smoothing).run()
        _copy_others(checkpoint.folder, partial)
        (partial / SOURCE).unlink()
        if out.exists():
            shutil.rmtree(out)
        partial.rename(out)
    before = sum(file.stat().st_size for file in weight_files(checkpoint.folder))
    after = sum(file.stat().st_size for file in weight_files(out))
    return (
        f"{out}: {written} linear layers quantized, {format_bytes(after)} instead of {format_bytes(before)}; "
        f"serve it with: turnout serve {out}"
    )


@contextmanager
def _resumable(partial: Path) -> Iterator[None]:
    try:
        yield
    except (OSError, SafetensorError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        kept = (
            f"; what is done is kept in {partial}, and the same command goes on from there"
            if partial.is_dir()
            else ""
        )
        raise TurnoutError(f"{partial} cannot be written: {reason}{kept}") from error


# ------------------------------------------------------------------ before anything is written


def _check_source(checkpoint: Checkpoint, scheme: LinearScheme) -> None:
    if checkpoint.quantization is not None:
        method = checkpoint.quantization.get("quant_method")
        raise ConfigError(
            f"{checkpoint.folder} is quantized already, by {method}; take the unquantized checkpoint"
        )
    if scheme.embeddings:
        raise ConfigError(
            "embeddings=true: an embedding is stored as it is; leave the option out here, or quantize while "
            "it is loaded, with turnout serve"
        )
    if scheme.lm_head and checkpoint.spec.tied_embeddings:
        raise ConfigError(
            "lm_head=true: the head of this model is its embedding, and stored once; leave the option "
            "out here, or quantize while it is loaded, with turnout serve"
        )


def _check_target(source: Path, out: Path, force: bool) -> None:
    if not out.exists():
        return
    if out.resolve() == source.resolve():
        raise ConfigError(f"{out} is the checkpoint to be quantized; write to another folder")
    if not force:
        raise ConfigError(f"{out} exists already; choose another folder, or give --force to replace it")
    if not (out / "config.json").is_file():
        raise ConfigError(f"{out} holds no checkpoint, so --force does not replace it; choose another folder")


def _begin(partial: Path, source: Path, quantization: str, calibration: Calibration | None) -> None:
    """Go on with what is there of the same files and scheme, else start afresh."""
    files = {file.name: [file.stat().st_size, file.stat().st_mtime_ns] for file in weight_files(source)}
    wanted = {
        "source": str(source.resolve()),
        "quantization": quantization,
        "smooth": None if calibration is None else calibration.key,
        "files": files,
    }
    mark = partial / SOURCE
    if mark.is_file() and json.loads(mark.read_text(encoding="utf-8")) == wanted:
        return
    if partial.exists():
        if not mark.is_file():
            raise ConfigError(f"{partial} is in the way, and not from here; move it or choose another folder")
        shutil.rmtree(partial)
    partial.mkdir(parents=True)
    mark.write_text(json.dumps(wanted), encoding="utf-8")


def _smoothing(registry: Registry, checkpoint: Checkpoint, calibration: Calibration) -> Smoothing:
    """All of the model is in memory meanwhile."""
    tokens = load_tokenizer(checkpoint.folder).encode(calibration.text)[:TOKENS]
    model = load_weights(registry, checkpoint, UNQUANTIZED, device=torch.device("cpu"), dtype=torch.float32)
    return find_smoothing(model, tokens, calibration.strength)


# ------------------------------------------------------------------ pieces


@dataclass(frozen=True)
class _Entry:
    key: str
    file: Path
    size: int
    """Bytes."""


@dataclass
class _Writing:
    checkpoint: Checkpoint
    scheme: LinearScheme
    folder: Path
    smoothing: Smoothing | None

    def run(self) -> int:
        """Write all pieces, index and config; returns how many layers are quantized."""
        linear, pieces = _linear(self.checkpoint), _pieces(weight_files(self.checkpoint.folder))
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


def _linear(checkpoint: Checkpoint) -> dict[str, nn.Linear]:
    with torch.device("meta"):
        module = checkpoint.family.build(checkpoint.spec)
    return {name: layer for name, layer in module.named_modules() if isinstance(layer, nn.Linear)}


def _pieces(files: Iterable[Path]) -> list[list[_Entry]]:
    """Consecutive tensors of `PIECE_BYTES` or a little more."""
    pieces: list[list[_Entry]] = [[]]
    for entry in (entry for file in files for entry in _entries(file)):
        if sum(each.size for each in pieces[-1]) >= PIECE_BYTES:
            pieces.append([])
        pieces[-1].append(entry)
    return pieces


def _entries(file: Path) -> list[_Entry]:
    try:
        with safe_open(file, framework="pt") as tensors:
            return [_Entry(key, file, _size(tensors.get_slice(key))) for key in tensors.offset_keys()]
    except Exception as error:
        raise ModelError(f"{file} is damaged or cut short ({error}); fetch it again") from error


def _size(part: Any) -> int:
    count = 1
    for length in part.get_shape():
        count *= length
    return count * 4


def _read(entry: _Entry) -> Tensor:
    """A copy of its own: pages of the file count as ours for as long as it is mapped."""
    with safe_open(entry.file, framework="pt") as tensors:
        value: Tensor = tensors.get_tensor(entry.key)
        return value.clone()


# ------------------------------------------------------------------ the rest


def _copy_others(source: Path, target: Path) -> None:
    """Tokenizer, chat template, licence: every file that is neither weights nor written here."""
    for file in source.iterdir():
        written = (target / file.name).exists() or file.name.endswith(".index.json")
        if file.is_file() and not written and file.suffix not in WEIGHTS:
            shutil.copyfile(file, target / file.name)


def _write_json(path: Path, value: object) -> None:
    path.write_text(json.dumps(value, indent=2) + "\n", encoding="utf-8")
