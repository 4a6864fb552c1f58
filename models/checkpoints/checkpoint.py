"""Reads a checkpoint folder: its JSON files and the list of its weight files."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from turnout.core.errors import ModelError
from turnout.models.gguf.given import LINK, stated_in

__all__ = [
    "INDEX_FILE",
    "SINGLE_FILE",
    "check_weights_suffice",
    "indexed_files",
    "read_config",
    "read_generation_config",
    "read_json",
    "weight_files",
]

SINGLE_FILE = "model.safetensors"
INDEX_FILE = "model.safetensors.index.json"
MAX_JSON = 64 * 2**20
"""Bytes of a JSON file, without the tokenizer's: more than the index of the largest models has."""
MAX_SHARDS = 16_384
PICKLES = ("*.bin", "*.pt", "*.pth", "*.ckpt")


def read_config(folder: Path) -> dict[str, Any]:
    """Read ``config.json``. Raises ModelError if it is missing or malformed."""
    path = folder / "config.json"
    if not path.is_file():
        raise ModelError(f"{folder} holds no config.json; give the folder of a Hugging Face style checkpoint")
    return read_json(path)


def read_generation_config(folder: Path) -> dict[str, Any]:
    """Read ``generation_config.json``; empty if there is none."""
    return read_json(folder / "generation_config.json", needed=False)


def read_json(path: Path, *, needed: bool = True) -> dict[str, Any]:
    """Read a file that holds one JSON object; empty if there is no file and it is not `needed`."""
    if not needed and not path.is_file():
        return {}
    try:
        if (size := path.stat().st_size) > MAX_JSON:
            raise ModelError(f"{path} has {size:,} bytes; at most {MAX_JSON:,} are read")
        value = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ModelError(f"{path} cannot be read as JSON: {error}; fetch the checkpoint again") from error
    except RecursionError:
        raise ModelError(f"{path} is nested too deeply") from None
    if not isinstance(value, dict):
        raise ModelError(f"{path} should hold a JSON object, not {type(value).__name__}")
    return value


def weight_files(folder: Path) -> list[Path]:
    """The safetensors files of a checkpoint: one, or its shards. Raises ModelError unless all are there."""
    if (folder / INDEX_FILE).is_file():
        return _shards(folder)
    if (folder / SINGLE_FILE).is_file():
        return [folder / SINGLE_FILE]
    if (folder / LINK).is_file():
        return [folder / LINK]
    pickles = sorted(path.name for pattern in PICKLES for path in folder.glob(pattern))
    if pickles:
        raise ModelError(
            f"{folder} holds only pickle weights ({pickles[0]}), which can run code when loaded and are "
            "refused; convert them to safetensors"
        )
    raise ModelError(f"{folder} holds no weights: expected {SINGLE_FILE} or {INDEX_FILE} with its shards")


def indexed_files(folder: Path) -> Mapping[str, str]:
    """The name of each tensor's file, as the index of shards says it; empty if no index is followed."""
    found = read_json(folder / INDEX_FILE, needed=False).get("weight_map", {})
    return found if isinstance(found, dict) and not _is_old(folder, found.values()) else {}


def check_weights_suffice(folder: Path, parameters: int) -> None:
    """Raises ModelError if the weight files are too small for that many parameters, even of one bit each.

    Such a model is not built: a small folder could ask for any number of layers of any size.
    """
    size = sum(file.stat().st_size for file in weight_files(folder))
    if parameters > 8 * size:
        raise ModelError(
            f"{stated_in(folder)} asks for {parameters:,} parameters (vocab_size, hidden_size, "
            f"intermediate_size, num_hidden_layers), but the weights have only {size:,} bytes"
        )


def _shards(folder: Path) -> list[Path]:
    index = folder / INDEX_FILE
    weight_map = read_json(index).get("weight_map")
    if not isinstance(weight_map, dict) or not all(isinstance(name, str) for name in weight_map.values()):
        raise ModelError(f"{index} should hold a 'weight_map' from tensor names to file names")
    names = sorted(set(weight_map.values()))
    if len(names) > MAX_SHARDS:
        raise ModelError(f"{index} names {len(names):,} shards; at most {MAX_SHARDS:,} are read")
    for name in names:
        if Path(name).name != name:
            raise ModelError(f"{index} names {name!r}, which is not a file name in the same folder")
    if _is_old(folder, names):
        return [folder / SINGLE_FILE]
    for name in names:
        if not (folder / name).is_file():
            raise ModelError(
                f"{folder / name} is missing; the index names {len(names)} shards; fetch the checkpoint again"
            )
    return [folder / name for name in names]


def _is_old(folder: Path, names: Collection[str]) -> bool:
    """Says whether an index of files of these names stayed behind when the model was saved anew as one file.

    transformers leaves it there, and reads the single file.
    """
    return SINGLE_FILE not in names and (folder / SINGLE_FILE).is_file()
