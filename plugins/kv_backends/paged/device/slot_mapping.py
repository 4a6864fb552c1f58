"""Slot mapping: the slots of a paged pool that hold a sequence's positions."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from turnout.core.types.plan import Chunk
from turnout.plugins.kv_backends.paged.host.block_tables import BlockTable

__all__ = ["Ints", "slots_of", "slots_table"]

Ints = npt.NDArray[np.int32]


def slots_of(chunk: Chunk, table: BlockTable, block_size: int) -> npt.NDArray[np.int64]:
    """The slots of a chunk's positions, [tokens]. table: the block table of its sequence."""
    positions = np.arange(chunk.start, chunk.end)
    first = chunk.start // block_size
    blocks = np.array(table[first : -(-chunk.end // block_size)])
    return np.asarray(blocks[positions // block_size - first] * block_size + positions % block_size)


def slots_table(tables: Sequence[BlockTable], block_size: int) -> Ints:
    """The first slot of each block, [tables, most blocks]; 0 beyond the end of a table."""
    counts = np.fromiter(map(len, tables), np.int64, len(tables))
    most = int(counts.max())
    slots = np.zeros((len(tables), most), dtype=np.int32)
    # Joins the memory of the tables: a loop over hundreds of them takes ten times as long.
    slots[np.arange(most) < counts[:, None]] = np.frombuffer(b"".join(tables), np.int32)
    slots *= np.int32(block_size)
    return slots
