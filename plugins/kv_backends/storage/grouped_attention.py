"""Grouped attention, the device half that both built-in backends share.

Plain PyTorch, the same on CPU and GPU: a step's chunks are sorted into groups, each computed as one batch. A
backend provides the slots of their tokens and of their contexts. Compiled kernels, where there are any, read
the pool in place instead.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from turnout.core.interfaces.attention import AttentionCapabilities
from turnout.core.interfaces.compute import ComputeContext
from turnout.core.types.plan import Chunk, Move, Plan
from turnout.kernels import cpu_kernels
from turnout.kernels.attention.dense import attend_densely, hidden_from
from turnout.kernels.gpu.staging import to_device
from turnout.kernels.layers import InPlace
from turnout.plugins.kv_backends.storage.block_copies import block_copier
from turnout.plugins.kv_backends.storage.compiled_attention import CompiledAttention, why_not_compiled
from turnout.plugins.kv_backends.storage.pool import Pool

__all__ = ["Group", "GroupedAttention", "Pool", "Slots"]

Slots = npt.NDArray[np.int64]
"""Token positions in the pool."""


@dataclass(frozen=True, slots=True)
class Group:
    """Chunks of equal length whose attention is computed as one batch."""

    rows: slice | Tensor
    """The rows of their tokens in the flat batch: [batch * length]."""
    batch: int
    length: int
    contexts: Mapping[tuple[int, int | None], Context]
    """By the KV group and the window of a layer."""


@dataclass(frozen=True, slots=True)
class Context:
    """The positions that a group reads in layers of one KV group and one window."""

    where: Tensor | slice
    """What the storage reads for all chunks, context after context."""
    mask: Tensor | None
    """What is added to scores, [batch, 1, length, context length]; None if every row attends to its whole
    context."""


class GroupedAttention(ABC):
    """Attention by the rules of a model's layers; implements AttentionBackend."""

    def __init__(self, pool: Pool, context: ComputeContext) -> None:
        device, dtype = context.device, context.dtype
        self.storage = pool.storage(device, dtype)
        self._rules = pool.rules
        self._table_of = pool.table_of
        self._tables = max(pool.table_of) + 1
        pairs = zip(pool.table_of, pool.rules, strict=True)
        self._kinds = list(dict.fromkeys((table, rule.window) for table, rule in pairs))
        kernels = cpu_kernels(context.kernels)
        self._compiled = CompiledAttention.over(self.storage, pool.rules, kernels, pool.table_of)
        self.summary: Sequence[str] = () if kernels is None else why_not_compiled(pool.rules)
        self.capabilities = AttentionCapabilities(in_place=self._compiled is not None)
        self._copier = block_copier(self.storage.tensors, pool.swap)
        self._device = device
        self._dtype = dtype
        self._groups: list[Group] = []
        self._written: list[Tensor] = []
        """Of each KV group: the slots of the step's tokens."""

    # -------------------------------------------------------------- to be implemented

    @abstractmethod
    def slots(self, chunk: Chunk, table: int = 0) -> Slots:
        """The slots that the chunk's tokens are written to. table: the number of a KV group."""

    @abstractmethod
    def size_class(self, chunk: Chunk) -> Hashable:
        """Chunks of equal length and size class form a group."""

    @abstractmethod
    def context(
        self, chunks: Sequence[Chunk], firsts: Slots, table: int = 0
    ) -> tuple[Tensor | slice, int, Slots]:
        """What the storage reads for a group of chunks, how many positions of each, and from which on.

        firsts: the first position of each chunk's context that is wanted; it may begin before. table: the
        number of a KV group.
        """

    @abstractmethod
    def block_starts(self, chunks: Sequence[Chunk], table: int = 0) -> tuple[Slots, int]:
        """The first slot of each block of each chunk's context, [chunks, most], and the size of a block.

        Values beyond the end of a context are arbitrary. table: the number of a KV group.
        """

    # -------------------------------------------------------------- a step

    def move(self, moves: Sequence[Move]) -> None:
        self._copier.carry_out(moves)

    def bind(self, plan: Plan) -> None:
        if self._compiled is not None:
            starts = [self.block_starts(plan.chunks, table) for table in range(self._tables)]
            self._compiled.bind(plan.chunks, [slots for slots, _ in starts], starts[0][1])
        else:
            self._written = [
                self._on_device(np.concatenate([self.slots(chunk, table) for chunk in plan.chunks]))
                for table in range(self._tables)
            ]
            self._groups = self._grouped(plan)

    @property
    def in_place(self) -> InPlace:
        """The step's tensors for compiled kernels; implements InPlaceAttention."""
        assert self._compiled is not None and self._compiled.in_place is not None
        return self._compiled.in_place

    def _grouped(self, plan: Plan) -> list[Group]:
        members: dict[Hashable, list[tuple[int, Chunk]]] = {}
        first = 0
        for chunk in plan.chunks:
            members.setdefault((len(chunk.tokens), self.size_class(chunk)), []).append((first, chunk))
            first += len(chunk.tokens)
        return [self._group(group, first) for group in members.values()]

    def __call__(
        self, layer: int, q: Tensor, k: Tensor | None, v: Tensor | None, sinks: Tensor | None = None
    ) -> Tensor:
        if self._compiled is not None:
            return self._compiled(layer, q, k, v, sinks)
        if k is not None:
            self.storage.write(layer, self._written[self._table_of[layer]], k, v)
        if len(self._groups) == 1:
            return self._attend(layer, self._groups[0], q, sinks)
        out = q.new_empty(*q.shape[:2], self._rules[layer].value_dim)
        for group in self._groups:
            out[group.rows] = self._attend(layer, group, q[group.rows], sinks)
        return out

    # -------------------------------------------------------------- details

    def _attend(self, layer: int, group: Group, q: Tensor, sinks: Tensor | None) -> Tensor:
        """[batch * length, heads, value_dim]. q: [batch * length, heads, key_dim]."""
        rule = self._rules[layer]
        context = group.contexts[self._table_of[layer], rule.window]
        sides = (q, *self.storage.read(layer, context.where))
        queries, k, v = (side.view(group.batch, -1, *side.shape[1:]) for side in sides)
        return attend_densely(rule, queries, k, v, context.mask, sinks).flatten(0, 1)

    def _group(self, members: list[tuple[int, Chunk]], tokens: int) -> Group:
        chunks = [chunk for _, chunk in members]
        firsts = np.array([first for first, _ in members])
        length = len(chunks[0].tokens)
        contexts = {(table, window): self._context(chunks, table, window) for table, window in self._kinds}
        return Group(self._rows(firsts, length), len(chunks), length, contexts)

    def _rows(self, firsts: Slots, length: int) -> slice | Tensor:
        rows = (firsts[:, None] + np.arange(length)).reshape(-1)
        if rows[-1] - rows[0] == len(rows) - 1:
            return slice(int(rows[0]), int(rows[-1]) + 1)
        return self._on_device(rows)

    def _context(self, chunks: Sequence[Chunk], table: int, window: int | None) -> Context:
        starts = np.array([chunk.start for chunk in chunks])
        firsts = np.zeros_like(starts) if window is None else np.maximum(0, starts + 1 - window)
        where, positions, begins = self.context(chunks, firsts, table)
        length = len(chunks[0].tokens)
        if length == 1 and (begins == firsts).all() and (starts + 1 - begins == positions).all():
            return Context(where, None)
        queries = self._on_device(starts[:, None] + np.arange(length))
        places = self._on_device(begins[:, None] + np.arange(positions))
        hidden = hidden_from(queries[:, None, :, None], places[:, None, None], window)
        mask = torch.zeros(hidden.shape, dtype=self._dtype, device=self._device)
        return Context(where, mask.masked_fill_(hidden, float("-inf")))

    def _on_device(self, array: npt.NDArray[np.int64]) -> Tensor:
        return to_device(array, self._device)
