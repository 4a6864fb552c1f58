"""Device half of the paged backend in PyTorch: gathers the blocks of a group into one batch."""

from __future__ import annotations

from array import array
from collections.abc import Hashable, Mapping, Sequence

import numpy as np
from torch import Tensor

from turnout.core.interfaces.compute import ComputeContext
from turnout.core.types.model_spec import ModelSpec
from turnout.core.types.plan import Chunk
from turnout.plugins.kv_backends.paged.device.slot_mapping import slots_of, slots_table
from turnout.plugins.kv_backends.paged.host.block_tables import BlockTable
from turnout.plugins.kv_backends.paged.host.cache import PagedCache
from turnout.plugins.kv_backends.storage.dtypes import KVDtype
from turnout.plugins.kv_backends.storage.grouped_attention import GroupedAttention, Slots
from turnout.plugins.kv_backends.storage.pool import Places, Pool

__all__ = ["PagedAttention"]


class PagedAttention(GroupedAttention):
    """Reads the block tables of a `PagedCache`."""

    def __init__(
        self,
        spec: ModelSpec,
        cache: PagedCache,
        context: ComputeContext,
        stored: KVDtype = "auto",
        places: Places | None = None,
    ) -> None:
        rules, unit = spec.layer_attention(), cache.block_size
        pool = Pool(rules, cache.slots, stored, cache.swap_slots, unit, places)
        super().__init__(pool, context)
        self._cache = cache
        self._size = cache.block_size

    def slots(self, chunk: Chunk, table: int = 0) -> Slots:
        return slots_of(chunk, self._cache.group_tables[table][chunk.sequence.id], self._size)

    def size_class(self, chunk: Chunk) -> Hashable:
        """One class for each doubling: a context is padded to at most twice its blocks."""
        return self._blocks(chunk).bit_length()

    def context(
        self, chunks: Sequence[Chunk], firsts: Slots, table: int = 0
    ) -> tuple[Tensor | slice, int, Slots]:
        passed = firsts // self._size  # blocks
        found = self._cache.group_tables[table]
        if len(chunks) == 1 and (start := self._consecutive(chunks[0], found, int(passed[0]))) is not None:
            first, end = int(firsts[0]), chunks[0].end
            return slice(start + first, start + end), end - first, firsts
        counts = [self._blocks(chunk) for chunk in chunks] - passed
        tables = np.zeros((len(chunks), int(counts.max())), dtype=np.int64)
        for row, chunk, begin, count in zip(tables, chunks, passed, counts, strict=True):
            row[:count] = found[chunk.sequence.id][begin : begin + count]
            row[count:] = row[0]  # any block with finite numbers, which the mask hides
        return self._on_device(tables.reshape(-1)), tables.shape[1] * self._size, passed * self._size

    def block_starts(self, chunks: Sequence[Chunk], table: int = 0) -> tuple[Slots, int]:
        found = self._cache.group_tables[table]
        tables = [found[chunk.sequence.id] for chunk in chunks]
        return slots_table(tables, self._size).astype(np.int64), self._size

    def _consecutive(self, chunk: Chunk, tables: Mapping[int, BlockTable], passed: int) -> int | None:
        """The slot of position 0, as it were, if the blocks behind the `passed` ones are consecutive.

        The context is then read without a copy.
        """
        table = tables[chunk.sequence.id][passed : self._blocks(chunk)]
        if table != array("i", range(table[0], table[0] + len(table))):
            return None
        return (table[0] - passed) * self._size

    def _blocks(self, chunk: Chunk) -> int:
        return -(-chunk.end // self._size)
