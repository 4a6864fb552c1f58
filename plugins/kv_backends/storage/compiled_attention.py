"""Attention by compiled CPU kernels, which read the pool in place."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from turnout.core.types.layer_attention import LayerAttention
from turnout.core.types.plan import Chunk
from turnout.kernels import CpuKernels
from turnout.kernels.attention.rule import rule_of
from turnout.kernels.compiled import BlockTables
from turnout.kernels.layers import InPlace
from turnout.kernels.ragged import Numbers
from turnout.plugins.kv_backends.storage.memory_ahead import MemoryAhead
from turnout.plugins.kv_backends.storage.tensors import Storage
from turnout.plugins.kv_backends.storage.written_slots import written_slots

__all__ = ["CompiledAttention", "why_not_compiled"]


WIDEST = 1024
"""The widest head that the compiled kernels take."""


def why_not_compiled(rules: Sequence[LayerAttention]) -> Sequence[str]:
    """Says, for the start-up summary, why compiled kernels cannot attend; empty: they can."""
    widest = max(max(rule.key_dim, rule.value_dim) for rule in rules)
    if widest <= WIDEST:
        return []
    most = f"heads of {WIDEST} numbers at most, not {widest}"
    return [f"attention in plain PyTorch: the compiled kernels take {most}"]


class CompiledAttention:
    """Attention on a CPU, by the rules of layers, without groups, masks or copies."""

    def __init__(
        self,
        kernels: CpuKernels,
        storage: Storage,
        rules: Sequence[LayerAttention],
        table_of: Sequence[int],
    ) -> None:
        self._kernels, self._rules, self._table_of = kernels, rules, table_of
        for tensor in storage.tensors:
            kernels.enlarge_pages(tensor)
        self._ahead = MemoryAhead(kernels, storage.tensors)
        self._layers = [storage.stored(layer) for layer in range(len(rules))]
        self._native = [rule_of(rule) for rule in rules]
        self.in_place: InPlace | None = None
        """The tensors of the step that is bound."""

    @classmethod
    def over(
        cls,
        storage: Storage,
        rules: Sequence[LayerAttention],
        kernels: CpuKernels | None,
        table_of: Sequence[int],
    ) -> CompiledAttention | None:
        """Attention over `storage`; None without kernels, or where they cannot do it.

        table_of: by layer, the number of the KV group whose block tables it reads.
        """
        if kernels is None or why_not_compiled(rules):
            return None
        return cls(kernels, storage, rules, table_of)

    def bind(self, chunks: Sequence[Chunk], blocks: Sequence[Numbers], size: int) -> None:
        """blocks: for each KV group, the first slot of each block of each chunk's context, [chunks, most];
        size: of a block.
        """
        lengths = np.array([len(chunk.tokens) for chunk in chunks])
        starts = np.array([chunk.start for chunk in chunks])
        rows = lengths.cumsum() - lengths
        slots = [written_slots(each, starts, lengths, size) for each in blocks]
        self._ahead.reach(int(slots[0].max(initial=0)))
        written = [torch.from_numpy(each) for each in slots]
        first, *others = (torch.from_numpy(each) for each in blocks)
        where = torch.from_numpy(rows), torch.from_numpy(lengths), torch.from_numpy(starts)
        tables = [BlockTables(size, *where, first)]
        tables += [replace(tables[0], slots=each) for each in others]
        self.in_place = InPlace(self._layers, written, tables, self._rules, self._table_of)

    def __call__(
        self, layer: int, q: Tensor, k: Tensor | None, v: Tensor | None, sinks: Tensor | None = None
    ) -> Tensor:
        assert self.in_place is not None
        keys, values = self._layers[layer]
        table = self._table_of[layer]
        written, tables = self.in_place.written[table], self.in_place.tables[table]
        if k is not None:
            self._kernels.write(k, keys, written)
        if v is not None:
            self._kernels.write(v, values, written)
        return self._kernels.attend(q, keys, values, tables, self._native[layer], sinks)
