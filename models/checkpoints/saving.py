"""Writing safetensors."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from safetensors.torch import save_file
from torch import Tensor

__all__ = ["save_tensors"]


def save_tensors(tensors: Mapping[str, Tensor], path: Path, metadata: Mapping[str, str]) -> None:
    """Readable by whom other new files are: safetensors alone makes one for its owner's eyes only, which
    a server that runs as another user cannot open.

    Raises SafetensorError or OSError when it cannot be written.
    """
    path.touch()
    mode = path.stat().st_mode
    save_file(dict(tensors), path, metadata={"format": "pt", **metadata})
    path.chmod(mode)
