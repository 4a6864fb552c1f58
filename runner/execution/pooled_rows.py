"""Which rows of the flat batch are pooled: the hidden states that requests without output read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from turnout.core.types.plan import Chunk
from turnout.core.types.request import Sequence as TokenSequence
from turnout.kernels.ragged import Numbers

__all__ = ["PooledRows"]


@dataclass(frozen=True)
class PooledRows:
    """The rows that are pooled, by sequence, and how many rows the flat batch has."""

    rows: dict[TokenSequence, range]
    """Empty ranges where a chunk is computed of which nothing is read."""
    tokens: int

    @classmethod
    def of(cls, chunks: Sequence[Chunk]) -> PooledRows | None:
        """Returns those of a step; None, nearly always where models chat, if no chunk is pooled."""
        if all([chunk.pooled is None for chunk in chunks]):  # a list is quicker than a generator
            return None
        rows, first = {}, 0
        for chunk in chunks:
            if chunk.pooled is not None:
                before = first - chunk.start
                rows[chunk.sequence] = range(before + chunk.pooled.start, before + chunk.pooled.stop)
            first += len(chunk.tokens)
        return cls(rows, first)

    def joined(self, wanted: Numbers) -> Numbers:
        """Returns all rows whose hidden states are needed, ascending; `wanted`: those that get logits."""
        pooled = [np.arange(each.start, each.stop) for each in self.rows.values()]
        return np.sort(np.concatenate([wanted, *pooled]))

    def places(self, joined: Numbers | None = None) -> dict[TokenSequence, range]:
        """Returns where the rows of each sequence lie among the `joined` ones; None: among all rows."""
        if joined is None:
            return self.rows
        starts = np.searchsorted(joined, [each.start for each in self.rows.values()])
        return {
            sequence: range(start, start + len(rows))
            for (sequence, rows), start in zip(self.rows.items(), starts.tolist(), strict=True)
        }
