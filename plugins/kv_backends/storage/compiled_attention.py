"""Attention by compiled CPU kernels, which read the pool in place."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from turnout.core.types.layer_attention import LayerAttention
from turnout.core.types.plan import Chunk
from turnout.kernels import CpuKernels
from turnout.kernels.compiled import BlockTables
from turnout.kernels.layers import InPlace
from turnout.kernels.ragged import Numbers
from turnout.plugins.kv_backends.storage.tensors import PlainStorage, Storage
from turnout.plugins.kv_backends.storage.written_slots import written_slots

__all__ = ["CompiledAttention", "why_not_compiled"]


def why_not_compiled(storage: Storage, rules: Sequence[LayerAttention]) -> Sequence[str]:
    """Says, for the start-up summary, why compiled kernels cannot attend over `storage`; empty: they can."""
    if len(set(rules)) > 1 or rules[0].features():
        asked = sorted(frozenset().union(*(rule.features() for rule in rules)) or ["layer_shapes"])
        return [f"attention in plain PyTorch: the compiled kernels do not follow {', '.join(asked)}"]
    if not isinstance(storage, PlainStorage):
        return ["attention in plain PyTorch: the compiled kernels read no KV in 8 bits"]
    return []


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
    def over(
        cls, storage: Storage, rules: Sequence[LayerAttention], kernels: CpuKernels | None
    ) -> CompiledAttention | None:
        """Attention over `storage`; None without kernels, or where they cannot do it."""
        if kernels is None or not isinstance(storage, PlainStorage) or why_not_compiled(storage, rules):
            return None
        return cls(kernels, storage)

    def bind(self, chunks: Sequence[Chunk], blocks: Numbers, size: int) -> None:
        """blocks: the first slot of each block of each chunk's context, [chunks, most]; size: of a block."""
        lengths = np.array([len(chunk.tokens) for chunk in chunks])
        starts = np.array([chunk.start for chunk in chunks])
        rows = lengths.cumsum() - lengths
        written = torch.from_numpy(written_slots(blocks, starts, lengths, size))
        tables = (torch.from_numpy(numbers) for numbers in (rows, lengths, starts, blocks))
        self.in_place = InPlace(self._layers, written, BlockTables(size, *tables))

    def __call__(self, layer: int, q: Tensor, k: Tensor | None, v: Tensor | None) -> Tensor:
        assert self.in_place is not None and k is not None and v is not None
        keys, values = self._layers[layer]
        self._kernels.write(k, keys, self.in_place.written)
        self._kernels.write(v, values, self.in_place.written)
        return self._kernels.attend(q, keys, values, self.in_place.tables)
