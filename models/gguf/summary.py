"""Says at start-up how the weights of a GGUF file are held."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from pathlib import Path

from turnout.models.gguf.given import LINK
from turnout.models.gguf.header import read_header

__all__ = ["HELD", "describe_types"]

HELD = ("q8_0", "q4_0", "q4_k", "q6_k")
"""Types whose blocks layers can hold as they are."""
HELD_ON_GPU = HELD[:2]


def describe_types(folder: Path, dtype: str, device: str) -> list[str]:
    """Returns a line on the types of the file's matrices; none for other checkpoints.

    dtype: of numbers; device: ``cpu``, or another type.
    """
    if not (folder / LINK).exists():
        return []
    sizes = Counter[str]()
    for tensor in read_header(folder / LINK).tensors.values():
        if len(tensor.shape) > 1:
            sizes[tensor.type] += tensor.size
    held = HELD if device == "cpu" else HELD_ON_GPU
    kinds = [(kind, _how(kind, held) or f"widened to {dtype}") for kind in sizes]
    parts = [f"{sizes[kind] / 1e6:,.0f} MB of {kind}, {how}" for kind, how in kinds if kind != dtype]
    return [f"weights of the file: {'; '.join(parts)}"]


def _how(kind: str, held: Collection[str]) -> str:
    if kind == "mxfp4":
        return "held exactly, in blocks of q8_0"
    return "kept in its blocks" if kind in held else ""
