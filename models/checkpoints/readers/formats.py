"""Chooses the reader of a weight file by its suffix, and by what it stores."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from turnout.models.checkpoints.readers.gguf_file import GGUFFile
from turnout.models.checkpoints.readers.mxfp4 import with_mxfp4
from turnout.models.checkpoints.readers.reader import WeightFile
from turnout.models.checkpoints.readers.safetensors_file import SafetensorsFile

__all__ = ["READERS", "open_weights"]

READERS: Mapping[str, type[WeightFile]] = {".safetensors": SafetensorsFile, ".gguf": GGUFFile}


def open_weights(files: Sequence[Path]) -> list[WeightFile]:
    """Returns a reader of each of a checkpoint's files."""
    return with_mxfp4([READERS[file.suffix](file) for file in files])
