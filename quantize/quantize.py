"""Writes a checkpoint with quantized weights, file by file.

::

    OUT.partial/   source.json                        what is being quantized, and how; locked meanwhile
                   model-0000i-of-0000n.safetensors   complete, or not there
    OUT/           all of it, by one rename at the end, once it is complete
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

import torch
from safetensors import SafetensorError

from turnout.core.errors import ConfigError, TurnoutError
from turnout.core.interfaces.compute import ComputeContext
from turnout.core.registry.registry import Registry
from turnout.core.registry.spec import PluginSpec
from turnout.models.checkpoints.checkpoint import weight_files
from turnout.models.checkpoints.index import index_checkpoint
from turnout.models.checkpoints.parameter_slots import parameter_slots
from turnout.models.embedder.folder import module_files
from turnout.models.gguf.given import given_name
from turnout.models.meta_model import meta_model
from turnout.plugins.defaults import UNQUANTIZED
from turnout.quantize.selection import exporter_of, select_layers
from turnout.quantize.shards import ShardWriter
from turnout.quantize.smoothquant import MAX_TOKENS, Calibration, Smoothing, find_smoothing
from turnout.runner.checkpoint import Checkpoint, open_checkpoint
from turnout.runner.memory.budget import format_bytes
from turnout.runner.weights import load_weights
from turnout.text.tokenizer import load_tokenizer

__all__ = ["quantize_checkpoint"]

SOURCE = "source.json"
WEIGHTS = (".safetensors", ".bin", ".pt", ".pth", ".ckpt", ".gguf", ".onnx", ".h5", ".msgpack")
"""Suffixes of files that hold weights, in any format; they are not copied."""


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
    """Write `model`, quantized, to the folder `out`; returns a line that says what was written.

    calibration: the text and strength of SmoothQuant, applied beforehand; None: it is not applied. Raises
    ConfigError or ModelError, and TurnoutError for a full disk: the files that are complete by then are kept,
    and the next call continues from there.
    """
    quantizer, name = registry.create("quantization", quantization), PluginSpec.parse(quantization).name
    exporter = exporter_of(registry, name, quantizer)
    checkpoint = open_checkpoint(registry, model, revision)
    _check_source(checkpoint)
    module = meta_model(checkpoint.family, checkpoint.spec)
    layers, slots = select_layers(module, quantization, quantizer), parameter_slots(module)
    index_checkpoint(checkpoint.folder, checkpoint.family, slots, {})  # raises where it could not be loaded
    out = Path(os.path.realpath(out))
    _check_target(checkpoint.folder, out, force)
    partial = out.with_name(f"{out.name}.partial")
    with _resumable(partial), _begun(partial, _mark(checkpoint.folder, quantization, calibration)):
        smoothing = None if calibration is None else _smoothing(registry, checkpoint, calibration)
        ShardWriter(checkpoint, exporter, layers, slots, partial, smoothing).write()
        _copy_others(checkpoint.folder, partial)
        if out.exists():
            shutil.rmtree(out)
        partial.rename(out)
        (out / SOURCE).unlink()
    before = sum(file.stat().st_size for file in weight_files(checkpoint.folder))
    after = sum(file.stat().st_size for file in weight_files(out))
    return (
        f"{out}: {len(layers.quantized)} linear layers quantized, {format_bytes(after)} instead of "
        f"{format_bytes(before)}; serve it with: turnout serve {out}"
    )


@contextmanager
def _resumable(partial: Path) -> Iterator[None]:
    try:
        yield
    except (OSError, SafetensorError) as error:
        reason = getattr(error, "strerror", None) or error  # shutil raises some without
        kept = (
            f"; what is done is kept in {partial}, and the same command continues from there"
            if partial.is_dir()
            else ""
        )
        raise TurnoutError(f"{partial} cannot be written: {reason}{kept}") from error


# ------------------------------------------------------------------ before anything is written


def _check_source(checkpoint: Checkpoint) -> None:
    if checkpoint.quantization is not None:
        method = checkpoint.quantization.get("quant_method")
        raise ConfigError(
            f"{given_name(checkpoint.folder)} is quantized already, by {method}; take the unquantized "
            "checkpoint"
        )


def _check_target(source: Path, out: Path, force: bool) -> None:
    if not out.exists():
        return
    if out in (source := source.resolve(), *source.parents):
        what = "is" if out == source else "holds"
        raise ConfigError(f"{out} {what} the checkpoint to be quantized; choose another folder")
    if not force:
        raise ConfigError(f"{out} exists already; choose another folder, or give --force to replace it")
    if not (out / "config.json").is_file():
        raise ConfigError(f"{out} holds no checkpoint, so --force does not replace it; choose another folder")


def _mark(source: Path, quantization: str, calibration: Calibration | None) -> str:
    """What tells the files of one run from those of another: the checkpoint and the options."""
    files = {file.name: [file.stat().st_size, file.stat().st_mtime_ns] for file in weight_files(source)}
    return json.dumps(
        {
            "source": str(source.resolve()),
            "quantization": quantization,
            "smooth": None if calibration is None else calibration.key,
            "files": files,
        }
    )


@contextmanager
def _begun(partial: Path, mark: str) -> Iterator[None]:
    """Keeps the folder to this process, with what an earlier run wrote under the same mark, or else empty.

    A refusal before anything is written removes it.
    """
    path = partial / SOURCE
    if partial.exists() and not path.is_file():
        raise ConfigError(
            f"{partial} is in the way, and turnout quantize did not write it; move it, or choose "
            "another folder"
        )
    partial.mkdir(parents=True, exist_ok=True)
    with path.open("a+", encoding="utf-8", errors="replace") as file:
        _lock(file, partial)
        file.seek(0)
        if file.read() != mark:  # of another run, or cut short by a full disk
            _clear(partial)
            file.truncate(0)
            file.write(mark)
            file.flush()
        try:
            yield
        except TurnoutError:
            if list(partial.iterdir()) == [path]:
                shutil.rmtree(partial)
            raise


def _lock(file: IO[str], partial: Path) -> None:
    """Locks the mark until it is closed. File systems without locks leave two runs to the user."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise ConfigError(
            f"another turnout quantize is writing to {partial}; wait until it ends, or choose another folder"
        ) from None
    except OSError:
        return


def _clear(partial: Path) -> None:
    """Removes all but the mark."""
    for path in partial.iterdir():
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        elif path.name != SOURCE:
            path.unlink()


def _smoothing(registry: Registry, checkpoint: Checkpoint, calibration: Calibration) -> Smoothing:
    """Find the factors of SmoothQuant, with the whole unquantized model in memory."""
    tokens = load_tokenizer(checkpoint.folder).encode(calibration.text)[:MAX_TOKENS]
    context = ComputeContext(torch.device("cpu"), torch.float32)
    model = load_weights(registry, checkpoint, UNQUANTIZED, context)
    return find_smoothing(model, tokens, calibration.strength, checkpoint.spec.layer_attention())


# ------------------------------------------------------------------ the rest


def _copy_others(source: Path, target: Path) -> None:
    """Copy tokenizer, chat template, licence: every file that neither holds weights nor was written here, and
    those of an embedder's modules."""
    for file in source.iterdir():
        written = (target / file.name).exists() or file.name.endswith(".index.json")
        if file.is_file() and not written and file.suffix not in WEIGHTS:
            shutil.copyfile(file, target / file.name)
    for name in module_files(source):
        if (source / name).is_file():
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(source / name, target / name)
