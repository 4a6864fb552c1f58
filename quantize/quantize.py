"""A checkpoint with quantized weights, written piece by piece.

::

    OUT.partial/   source.json                        what is being quantized, and how
                   model-0000i-of-0000n.safetensors   complete, or not there
    OUT/           all of it, by one rename at the end
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch
from safetensors import SafetensorError

from turnout.core.config import UNQUANTIZED
from turnout.core.errors import ConfigError, TurnoutError
from turnout.core.registry.registry import Registry
from turnout.models.checkpoints.checkpoint import weight_files
from turnout.plugins.quantization.schemes.scheme import LinearScheme
from turnout.quantize.shards import Pieces
from turnout.quantize.smoothquant import TOKENS, Calibration, Smoothing, find_smoothing
from turnout.runner.checkpoint import Checkpoint, open_checkpoint
from turnout.runner.memory.budget import format_bytes
from turnout.runner.weights import load_weights
from turnout.text.tokenizer import load_tokenizer

__all__ = ["quantize_checkpoint"]

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
        written = Pieces(checkpoint, scheme, partial, smoothing).write()
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


# ------------------------------------------------------------------ the rest


def _copy_others(source: Path, target: Path) -> None:
    """Tokenizer, chat template, licence: every file that is neither weights nor written here."""
    for file in source.iterdir():
        written = (target / file.name).exists() or file.name.endswith(".index.json")
        if file.is_file() and not written and file.suffix not in WEIGHTS:
            shutil.copyfile(file, target / file.name)
