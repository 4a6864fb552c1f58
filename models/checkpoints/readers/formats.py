"""Chooses the reader of a weight file by its suffix."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from turnout.models.checkpoints.readers.gguf_file import GGUFFile
from turnout.models.checkpoints.readers.reader import WeightFile
from turnout.models.checkpoints.readers.safetensors_file import SafetensorsFile

__all__ = ["READERS", "open_weights"]

READERS: Mapping[str, type[WeightFile]] = {".safetensors": SafetensorsFile, ".gguf": GGUFFile}


def open_weights(file: Path) -> WeightFile:
    """Returns the reader of `file`."""
    return READERS[file.suffix](file)
