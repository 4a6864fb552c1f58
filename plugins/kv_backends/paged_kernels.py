"""Device half of the paged backend on a GPU: attention through the block tables, nothing gathered."""

from __future__ import annotations

from collections.abc import Hashable, Sequence

import numpy as np
import torch
from torch import Tensor

from turnout.core.model import ModelSpec
from turnout.core.plan import Move, Plan
from turnout.plugins.kv_backends.formats import KVDtype
from turnout.plugins.kv_backends.kernels.ragged_attention import Lanes, Tiles, ragged_attention
from turnout.plugins.kv_backends.movers import mover_for
from turnout.plugins.kv_backends.paged_cache import PagedCache
from turnout.plugins.kv_backends.paged_tiles import tiles_of
from turnout.plugins.kv_backends.storage import PoolShape
from turnout.plugins.kv_backends.storages import make_storage

__all__ = ["PagedKernels"]


class PagedKernels:
    """Reads the block tables of a `PagedCache`; implements AttentionBackend."""

    def __init__(
        self,
        spec: ModelSpec,
        cache: PagedCache,
        device: torch.device,
        dtype: torch.dtype,
        stored: KVDtype = "auto",
    ) -> None:
        shape = PoolShape.of(spec, cache.capacity, unit=cache.block_size)
        self.storage = make_storage(stored, shape, device, dtype)
        self._mover = mover_for(self.storage.tensors, cache.parking)
        self._lanes = [_lanes(self.storage.tensors, layer, stored) for layer in range(spec.layers)]
        self._cache = cache
        self._share = spec.heads // spec.kv_heads
        self._device = device
        self._launches: list[Tiles] = []
        self._written = torch.empty(0, dtype=torch.int64, device=device)

    def move(self, moves: Sequence[Move]) -> None:
        self._mover.carry_out(moves)

    def bind(self, plan: Plan) -> None:
        size = self._cache.block_size
        tables = [self._cache.tables[chunk.sequence.id] for chunk in plan.chunks]
        self._launches = tiles_of(plan.chunks, tables, size, self._share, self._device)
        written = []
        for chunk, table in zip(plan.chunks, tables, strict=True):
            positions = np.arange(chunk.start, chunk.end)
            first = chunk.start // size
            blocks = np.array(table[first : -(-chunk.end // size)])
            written.append(blocks[positions // size - first] * size + positions % size)
        self._written = torch.from_numpy(np.concatenate(written)).to(self._device, non_blocking=True)

    def shape(self, plan: Plan) -> Hashable | None:
        """Every step has its own shapes: none is captured."""
        return None

    def __call__(self, layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        self.storage.write(layer, self._written, k, v)
        out = torch.empty(q.shape, dtype=q.dtype, device=q.device)
        for tiles in self._launches:
            ragged_attention(q, self._lanes[layer], tiles, self._cache.block_size, out)
        return out


def _lanes(tensors: Sequence[Tensor], layer: int, stored: KVDtype) -> Lanes:
    if stored in ("auto", "bfloat16"):
        k, v = (tensor[layer] for tensor in tensors)
        return Lanes(k, v)
    codes, scales = (tensor[layer] for tensor in tensors)
    (k, v), (k_scales, v_scales) = codes.chunk(2, dim=1), scales.chunk(2, dim=1)
    return Lanes(k, v, k_scales, v_scales, fp8=stored == "fp8")
