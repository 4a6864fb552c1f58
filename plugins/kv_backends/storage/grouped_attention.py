"""Grouped attention, the device half that both built-in backends share.

Plain PyTorch, the same on CPU and GPU: a step's chunks are sorted into groups, each computed as one batch. A
backend provides the slots of their tokens and of their contexts. Compiled kernels, where there are any, read
the pool in place instead.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Hashable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
import torch.nn.functional as F
from torch import Tensor

from turnout.core.interfaces.attention import AttentionCapabilities
from turnout.core.interfaces.compute import ComputeContext
from turnout.core.types.plan import Chunk, Move, Plan
from turnout.kernels import cpu_kernels
from turnout.kernels.gpu.staging import to_device
from turnout.kernels.layers import InPlace
from turnout.plugins.kv_backends.storage.block_copies import block_copier
from turnout.plugins.kv_backends.storage.compiled_attention import CompiledAttention
from turnout.plugins.kv_backends.storage.pool import Pool, make_storage

__all__ = ["Group", "GroupedAttention", "Pool", "Slots"]

Slots = npt.NDArray[np.int64]
"""Token positions in the pool."""

FOLD_LIMIT = 16
"""Query rows up to which the heads of a KV head are folded into rows: K and V need not be expanded, but the
mask is larger."""


@dataclass(frozen=True, slots=True)
class Group:
    """Chunks of equal length whose attention is computed as one batch."""

    rows: slice | Tensor
    """The rows of their tokens in the flat batch: [batch * length]."""
    batch: int
    length: int
    context: Tensor | slice
    """What the storage reads for all of them, context after context."""
    mask: Tensor | None
    """Additive, [batch, 1, length, context length]; None if every row attends to its whole context."""


class GroupedAttention(ABC):
    """Attention over a pool with the same shape in all layers; implements AttentionBackend."""

    def __init__(self, pool: Pool, context: ComputeContext) -> None:
        device, dtype = context.device, context.dtype
        self.storage = make_storage(pool.stored, pool.shape, device, dtype)
        self._compiled = CompiledAttention.over(self.storage, cpu_kernels(context.kernels))
        self.capabilities = AttentionCapabilities(in_place=self._compiled is not None)
        self._copier = block_copier(self.storage.tensors, pool.swap)
        self._device = device
        self._dtype = dtype
        self._groups: list[Group] = []
        self._written = torch.empty(0, dtype=torch.int64, device=device)

    # -------------------------------------------------------------- to be implemented

    @abstractmethod
    def slots(self, chunk: Chunk) -> Slots:
        """The slots that the chunk's tokens are written to."""

    @abstractmethod
    def size_class(self, chunk: Chunk) -> Hashable:
        """Chunks of equal length and size class form a group."""

    @abstractmethod
    def context(self, chunks: Sequence[Chunk]) -> tuple[Tensor | slice, int]:
        """What the storage reads for a group of chunks, and the number of positions of each chunk in it."""

    @abstractmethod
    def block_starts(self, chunks: Sequence[Chunk]) -> tuple[Slots, int]:
        """The first slot of each block of each chunk's context, [chunks, most], and the size of a block.

        Values beyond the end of a context are arbitrary.
        """

    # -------------------------------------------------------------- a step

    def move(self, moves: Sequence[Move]) -> None:
        self._copier.carry_out(moves)

    def bind(self, plan: Plan) -> None:
        if self._compiled is not None:
            self._compiled.bind(plan.chunks, *self.block_starts(plan.chunks))
        else:
            self._written = self._on_device(np.concatenate([self.slots(chunk) for chunk in plan.chunks]))
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

    def __call__(self, layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        if self._compiled is not None:
            return self._compiled(layer, q, k, v)
        self.storage.write(layer, self._written, k, v)
        if len(self._groups) == 1:
            return _attend(self._groups[0], q, *self._context(layer, self._groups[0]))
        out = torch.empty_like(q)
        for group in self._groups:
            out[group.rows] = _attend(group, q[group.rows], *self._context(layer, group))
        return out

    # -------------------------------------------------------------- details

    def _context(self, layer: int, group: Group) -> tuple[Tensor, Tensor]:
        """Keys and values, [batch, positions, kv_heads, head_dim] each."""
        keys, values = self.storage.read(layer, group.context)
        return keys.view(group.batch, -1, *keys.shape[1:]), values.view(group.batch, -1, *values.shape[1:])

    def _group(self, members: list[tuple[int, Chunk]], tokens: int) -> Group:
        chunks = [chunk for _, chunk in members]
        firsts = np.array([first for first, _ in members])
        length = len(chunks[0].tokens)
        context, positions = self.context(chunks)
        return Group(self._rows(firsts, length), len(chunks), length, context, self._mask(chunks, positions))

    def _rows(self, firsts: Slots, length: int) -> slice | Tensor:
        rows = (firsts[:, None] + np.arange(length)).reshape(-1)
        if rows[-1] - rows[0] == len(rows) - 1:
            return slice(int(rows[0]), int(rows[-1]) + 1)
        return self._on_device(rows)

    def _mask(self, chunks: Sequence[Chunk], positions: int) -> Tensor | None:
        starts = np.array([chunk.start for chunk in chunks])
        length = len(chunks[0].tokens)
        if length == 1 and (starts + 1 == positions).all():
            return None
        device, dtype = self._device, self._dtype
        last = self._on_device(starts[:, None] + np.arange(length))
        hidden = torch.arange(positions, device=device) > last[:, None, :, None]
        return torch.zeros(hidden.shape, dtype=dtype, device=device).masked_fill_(hidden, float("-inf"))

    def _on_device(self, array: npt.NDArray[np.int64]) -> Tensor:
        return to_device(array, self._device)


def _attend(group: Group, q: Tensor, keys: Tensor, values: Tensor) -> Tensor:
    """q: [batch * length, heads, head_dim], and so the result."""
    batch, length = group.batch, group.length
    heads, dim, kv_heads = q.shape[1], q.shape[2], keys.shape[2]
    k, v = keys.transpose(1, 2), values.transpose(1, 2)
    if length > FOLD_LIMIT:
        queries = q.view(batch, length, heads, dim).transpose(1, 2)
        out = F.scaled_dot_product_attention(
            queries, k, v, attn_mask=group.mask, enable_gqa=heads != kv_heads
        )
        return out.transpose(1, 2).reshape(q.shape)
    share = heads // kv_heads
    mask = group.mask
    if mask is not None and length > 1:
        mask = mask.repeat(1, 1, share, 1)
    folded = q.view(batch, length, kv_heads, share, dim).permute(0, 2, 3, 1, 4)
    out = F.scaled_dot_product_attention(
        folded.reshape(batch, kv_heads, share * length, dim), k, v, attn_mask=mask
    )
    return out.view(batch, kv_heads, share, length, dim).permute(0, 3, 1, 2, 4).reshape(q.shape)
