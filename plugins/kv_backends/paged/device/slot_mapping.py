"""Where in a paged pool sequences are."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from turnout.core.types.plan import Chunk
from turnout.plugins.kv_backends.paged.host.block_tables import BlockTable

__all__ = ["Ints", "slots_of", "slots_table"]

Ints = npt.NDArray[np.int32]


def slots_of(chunk: Chunk, table: BlockTable, block_size: int) -> npt.NDArray[np.int64]:
    """Slots of the chunk's positions, [tokens]. table: of its sequence."""
    positions = np.arange(chunk.start, chunk.end)
    first = chunk.start // block_size
    blocks = np.array(table[first : -(-chunk.end // block_size)])
    return np.asarray(blocks[positions // block_size - first] * block_size + positions % block_size)


def slots_table(tables: Sequence[BlockTable], block_size: int) -> Ints:
    """[tables, most blocks]: where each block begins; 0 beyond a table's last."""
    counts = np.fromiter(map(len, tables), np.int64, len(tables))
    most = int(counts.max())
    slots = np.zeros((len(tables), most), dtype=np.int32)
    # One piece of memory behind the other: a loop over hundreds of tables takes ten times as long.
    slots[np.arange(most) < counts[:, None]] = np.frombuffer(b"".join(tables), np.int32)
    slots *= np.int32(block_size)
    return slots
