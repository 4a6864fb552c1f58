"""Finds the tensors that a truncated safetensors file has lost.

::

    uint64, little-endian: n  |  n bytes of JSON: {name: {"data_offsets": [start, end], …}, …}  |  data
"""

from __future__ import annotations

import json
from pathlib import Path

__all__ = ["truncated_tensors"]


def truncated_tensors(file: Path) -> list[str]:
    """The tensors whose data is incomplete, in file order; none if the header itself is damaged."""
    try:
        with file.open("rb") as opened:
            length = int.from_bytes(opened.read(8), "little")
            size = file.stat().st_size - 8 - length
            header = json.loads(opened.read(length)) if size >= 0 else {}
        ends = {name: entry["data_offsets"][1] for name, entry in header.items() if name != "__metadata__"}
        return sorted((name for name, end in ends.items() if end > size), key=ends.__getitem__)
    except (OSError, ValueError, LookupError, TypeError, AttributeError, RecursionError):
        return []
