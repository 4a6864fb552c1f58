"""Attention by compiled CPU kernels, which read the pool in place."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from turnout.core.types.plan import Chunk
from turnout.kernels import CpuKernels
from turnout.kernels.compiled import BlockTables
from turnout.kernels.layers import InPlace
from turnout.kernels.ragged import Numbers
from turnout.plugins.kv_backends.storage.tensors import PlainStorage, Storage
from turnout.plugins.kv_backends.storage.written_slots import written_slots

__all__ = ["CompiledAttention"]


class CompiledAttention:
    """Attention over a pool with plain storage on a CPU, without groups, masks or copies."""

    def __init__(self, kernels: CpuKernels, storage: PlainStorage) -> None:
        self._kernels = kernels
        for tensor in storage.tensors:
            kernels.enlarge_pages(tensor)
        self._layers = list(zip(*(tensor.unbind() for tensor in storage.tensors), strict=True))
        self.in_place: InPlace | None = None
        """The tensors of the step that is bound."""

    @classmethod
    def over(cls, storage: Storage, kernels: CpuKernels | None) -> CompiledAttention | None:
        """Attention over `storage`; None without kernels, or if the storage is not plain."""
        return cls(kernels, storage) if kernels and isinstance(storage, PlainStorage) else None

    def bind(self, chunks: Sequence[Chunk], blocks: Numbers, size: int) -> None:
        """blocks: the first slot of each block of each chunk's context, [chunks, most]; size: of a block."""
        lengths = np.array([len(chunk.tokens) for chunk in chunks])
        starts = np.array([chunk.start for chunk in chunks])
        rows = lengths.cumsum() - lengths
        written = torch.from_numpy(written_slots(blocks, starts, lengths, size))
        tables = (torch.from_numpy(numbers) for numbers in (rows, lengths, starts, blocks))
        self.in_place = InPlace(self._layers, written, BlockTables(size, *tables))

    def __call__(self, layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        assert self.in_place is not None
        keys, values = self._layers[layer]
        self._kernels.write(k, keys, self.in_place.written)
        self._kernels.write(v, values, self.in_place.written)
        return self._kernels.attend(q, keys, values, self.in_place.tables)
