"""Device half of the contiguous backend: a sequence's context is a view of its slab."""

from __future__ import annotations

from collections.abc import Hashable, Sequence

import numpy as np
from torch import Tensor

from turnout.core.interfaces.compute import ComputeContext
from turnout.core.types.model_spec import ModelSpec
from turnout.core.types.plan import Chunk
from turnout.plugins.kv_backends.contiguous.cache import ContiguousCache
from turnout.plugins.kv_backends.storage.dtypes import KVDtype
from turnout.plugins.kv_backends.storage.pool import Pool, PooledAttention, Slots
from turnout.plugins.kv_backends.storage.tensors import PoolShape

__all__ = ["ContiguousAttention"]


class ContiguousAttention(PooledAttention):
    """Reads the slabs of a `ContiguousCache`."""

    def __init__(
        self,
        spec: ModelSpec,
        cache: ContiguousCache,
        context: ComputeContext,
        stored: KVDtype = "auto",
    ) -> None:
        shape = PoolShape.of(spec, cache.capacity)
        super().__init__(Pool(shape, stored, cache.swap), context)
        self._cache = cache

    def slots(self, chunk: Chunk) -> Slots:
        return self._start(chunk) + np.arange(chunk.start, chunk.end)

    def size_class(self, chunk: Chunk) -> Hashable:
        """Each by itself: reading in place beats copying slabs into a batch."""
        return chunk.sequence.id

    def context(self, chunks: Sequence[Chunk]) -> tuple[Tensor | slice, int]:
        (chunk,) = chunks
        start = self._start(chunk)
        return slice(start, start + chunk.end), chunk.end

    def places(self, chunks: Sequence[Chunk]) -> tuple[Slots, int]:
        return np.array([[self._start(chunk)] for chunk in chunks]), self._cache.capacity

    def _start(self, chunk: Chunk) -> int:
        return self._cache.slabs[chunk.sequence.id].start
