"""Device half of the contiguous backend: reads a sequence's context as a view of its slab."""

from __future__ import annotations

from collections.abc import Hashable, Sequence

import numpy as np
from torch import Tensor

from turnout.core.interfaces.compute import ComputeContext
from turnout.core.types.model_spec import ModelSpec
from turnout.core.types.plan import Chunk
from turnout.plugins.kv_backends.contiguous.cache import ContiguousCache
from turnout.plugins.kv_backends.storage.dtypes import KVDtype
from turnout.plugins.kv_backends.storage.grouped_attention import GroupedAttention, Slots
from turnout.plugins.kv_backends.storage.pool import Pool

__all__ = ["ContiguousAttention"]


class ContiguousAttention(GroupedAttention):
    """Reads the slabs of a `ContiguousCache`."""

    def __init__(
        self,
        spec: ModelSpec,
        cache: ContiguousCache,
        context: ComputeContext,
        stored: KVDtype = "auto",
    ) -> None:
        pool = Pool(spec.layer_attention(), cache.capacity, stored, cache.swap)
        super().__init__(pool, context)
        self._cache = cache

    def slots(self, chunk: Chunk, table: int = 0) -> Slots:
        return self._start(chunk) + np.arange(chunk.start, chunk.end)

    def size_class(self, chunk: Chunk) -> Hashable:
        """A class of its own: to read in place is quicker than to copy slabs into a batch."""
        return chunk.sequence.id

    def context(
        self, chunks: Sequence[Chunk], firsts: Slots, table: int = 0
    ) -> tuple[Tensor | slice, int, Slots]:
        (chunk,), first, start = chunks, int(firsts[0]), self._start(chunks[0])
        return slice(start + first, start + chunk.end), chunk.end - first, firsts

    def block_starts(self, chunks: Sequence[Chunk], table: int = 0) -> tuple[Slots, int]:
        return np.array([[self._start(chunk)] for chunk in chunks]), self._cache.capacity

    def _start(self, chunk: Chunk) -> int:
        return self._cache.slabs[chunk.sequence.id].start
