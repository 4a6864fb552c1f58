"""Device half of the paged backend in PyTorch: gathers the blocks of a group into one batch."""

from __future__ import annotations

from array import array
from collections.abc import Hashable, Sequence

import numpy as np
from torch import Tensor

from turnout.core.interfaces.compute import ComputeContext
from turnout.core.types.model_spec import ModelSpec
from turnout.core.types.plan import Chunk
from turnout.plugins.kv_backends.paged.device.slot_mapping import slots_of, slots_table
from turnout.plugins.kv_backends.paged.host.cache import PagedCache
from turnout.plugins.kv_backends.storage.dtypes import KVDtype
from turnout.plugins.kv_backends.storage.grouped_attention import GroupedAttention, Slots
from turnout.plugins.kv_backends.storage.pool import Pool

__all__ = ["PagedAttention"]


class PagedAttention(GroupedAttention):
    """Reads the block tables of a `PagedCache`."""

    def __init__(
        self,
        spec: ModelSpec,
        cache: PagedCache,
        context: ComputeContext,
        stored: KVDtype = "auto",
    ) -> None:
        pool = Pool(spec.layer_attention(), cache.capacity, stored, cache.swap, unit=cache.block_size)
        super().__init__(pool, context)
        self._cache = cache
        self._size = cache.block_size

    def slots(self, chunk: Chunk) -> Slots:
        return slots_of(chunk, self._cache.tables[chunk.sequence.id], self._size)

    def size_class(self, chunk: Chunk) -> Hashable:
        """One class for each doubling: a context is padded to at most twice its blocks."""
        return self._blocks(chunk).bit_length()

    def context(self, chunks: Sequence[Chunk]) -> tuple[Tensor | slice, int]:
        if len(chunks) == 1 and (consecutive := self._consecutive(chunks[0])) is not None:
            return consecutive, chunks[0].end
        most = max(self._blocks(chunk) for chunk in chunks)
        tables = np.zeros((len(chunks), most), dtype=np.int64)
        for row, chunk in zip(tables, chunks, strict=True):
            count = self._blocks(chunk)
            row[:count] = self._cache.tables[chunk.sequence.id][:count]
            row[count:] = row[0]  # any block with finite numbers, which the mask hides
        return self._on_device(tables.reshape(-1)), most * self._size

    def block_starts(self, chunks: Sequence[Chunk]) -> tuple[Slots, int]:
        tables = [self._cache.tables[chunk.sequence.id] for chunk in chunks]
        return slots_table(tables, self._size).astype(np.int64), self._size

    def _consecutive(self, chunk: Chunk) -> slice | None:
        """The slots of the chunk's context if its blocks are consecutive, to be read without a copy."""
        table = self._cache.tables[chunk.sequence.id][: self._blocks(chunk)]
        if table != array("i", range(table[0], table[0] + len(table))):
            return None
        start = table[0] * self._size
        return slice(start, start + chunk.end)

    def _blocks(self, chunk: Chunk) -> int:
        return -(-chunk.end // self._size)
