"""Writes safetensors files."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from safetensors.torch import save_file
from torch import Tensor

__all__ = ["save_tensors"]


def save_tensors(tensors: Mapping[str, Tensor], path: Path, metadata: Mapping[str, str]) -> None:
    """Write a safetensors file with the mode of other new files.

    safetensors alone makes it readable only by its owner, so that a server of another user could not open it.
    Raises SafetensorError or OSError if it cannot be written.
    """
    path.touch()
    mode = path.stat().st_mode
    save_file(dict(tensors), path, metadata={"format": "pt", **metadata})
    path.chmod(mode)
