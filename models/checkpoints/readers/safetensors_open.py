"""Opens safetensors files, and finds out why one cannot be opened."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open

from turnout.core.errors import ModelError
from turnout.models.checkpoints.readers.truncated import truncated_tensors

__all__ = ["open_tensors"]

MAX_HEADER = 16 * 2**20
"""Bytes of a header: a tensor takes about a hundred."""
POINTER = b"version https://git-lfs"


def open_tensors(file: Path) -> Any:
    """As `safe_open` for PyTorch. Raises ModelError that says what is wrong with the file."""
    _check_header_size(file)
    try:
        return safe_open(file, framework="pt")
    except (SafetensorError, OSError) as error:
        if not os.access(file, os.R_OK):  # safetensors reports this as a missing file
            raise ModelError(f"this user may not read {file}; change its mode or owner") from error
        if _is_pointer(file):
            raise ModelError(f"{file} is a Git LFS pointer, not the weights; run: git lfs pull") from error
        if lost := truncated_tensors(file):
            more = f", before {len(lost) - 1} more" if len(lost) > 1 else ""
            raise ModelError(
                f"{file} is cut short in the tensor {lost[0]!r}{more}; fetch it again"
            ) from error
        raise ModelError(f"{file} is damaged or cut short ({error}); fetch it again") from error


def _check_header_size(file: Path) -> None:
    """Raises ModelError for a header so long that reading it would take seconds and much memory."""
    try:
        with file.open("rb") as content:
            length = int.from_bytes(content.read(8), "little")
    except OSError:
        return  # what is wrong with the file is told when it is opened
    if MAX_HEADER < length <= file.stat().st_size:
        raise ModelError(f"{file} has a header of {length:,} bytes; at most {MAX_HEADER:,} are read")


def _is_pointer(file: Path) -> bool:
    """Is the file what a clone without Git LFS leaves in its place?"""
    with file.open("rb") as content:
        return content.read(len(POINTER)) == POINTER
