"""The slots of a pool that a step writes to."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from turnout.kernels.ragged import ranges

__all__ = ["written_slots"]


def written_slots(
    table: npt.NDArray[np.integer[Any]],
    starts: npt.NDArray[np.integer[Any]],
    lengths: npt.NDArray[np.integer[Any]],
    block_size: int,
) -> npt.NDArray[np.int64]:
    """The slot of each of the step's tokens, [tokens], chunk after chunk.

    table: the row of `slots_table` for each chunk's sequence; starts, lengths: of the chunks, in tokens.
    """
    positions, of = ranges(starts, lengths), np.arange(len(lengths))
    if not (lengths == 1).all():
        of = np.repeat(of, lengths)
    return table[of, positions // block_size] + positions % block_size
