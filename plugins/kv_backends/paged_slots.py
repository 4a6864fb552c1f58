"""Where in a paged pool the tokens of a step are written."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from turnout.core.plan import Chunk

__all__ = ["slots_of"]


def slots_of(chunk: Chunk, table: Sequence[int], block_size: int) -> npt.NDArray[np.int64]:
    """Slots of the chunk's positions, [tokens]. table: of its sequence, blocks of the pool."""
    positions = np.arange(chunk.start, chunk.end)
    first = chunk.start // block_size
    blocks = np.array(table[first : -(-chunk.end // block_size)])
    return np.asarray(blocks[positions // block_size - first] * block_size + positions % block_size)
