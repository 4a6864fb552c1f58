"""Device half of the paged backend on a GPU: kernels read through the block tables, without gathering."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
from torch import Tensor

from turnout.core.interfaces.attention import AttentionCapabilities
from turnout.core.interfaces.compute import ComputeContext
from turnout.core.types.model_spec import ModelSpec
from turnout.core.types.plan import Chunk, Move, Plan, StepShape
from turnout.kernels.gpu.staging import to_device
from turnout.plugins.kv_backends.paged.device.bound_attention import BoundAttention
from turnout.plugins.kv_backends.paged.device.kernels.lanes import Lanes
from turnout.plugins.kv_backends.paged.device.kernels.ragged_attention import WIDE
from turnout.plugins.kv_backends.paged.device.shared_prefixes import SharedPrefix, shared_prefixes
from turnout.plugins.kv_backends.paged.device.slot_mapping import slots_table
from turnout.plugins.kv_backends.paged.device.step_shapes import ShapedStep, shape_of
from turnout.plugins.kv_backends.paged.device.tiles import LONG, SHORT, tiles_of
from turnout.plugins.kv_backends.paged.host.block_tables import BlockTable
from turnout.plugins.kv_backends.paged.host.cache import PagedCache
from turnout.plugins.kv_backends.storage.block_copies import block_copier
from turnout.plugins.kv_backends.storage.dtypes import KVDtype
from turnout.plugins.kv_backends.storage.pool import Places, Pool
from turnout.plugins.kv_backends.storage.written_slots import written_slots

__all__ = ["FOLLOWED", "PagedKernels", "lanes_of"]

FOLLOWED = frozenset({"scale", "window", "softcap", "sinks"})
"""The attention features that the kernels follow."""


class PagedKernels:
    """Reads the block tables of a `PagedCache`. Implements CapturableAttention and RotatingAttend."""

    capabilities = AttentionCapabilities(rotates=True, captures=True)
    summary: Sequence[str] = ()

    def __init__(
        self,
        spec: ModelSpec,
        cache: PagedCache,
        context: ComputeContext,
        stored: KVDtype = "auto",
        cascade: int = 0,
        places: Places | None = None,
    ) -> None:
        """cascade: saved positions from which on a shared prefix is read once; 0: never. places: of layers in
        KV groups, of which the first is read so.
        """
        rules, unit = spec.layer_attention(), cache.block_size
        pool = Pool(rules, cache.slots, stored, cache.swap_slots, unit, places)
        self.storage = pool.storage(context.device, context.dtype)
        self._rules, self._table_of = pool.rules, pool.table_of
        self._copier = block_copier(self.storage.tensors, cache.swap_slots)
        self._lanes = [lanes_of(*self._place(layer), stored) for layer in range(spec.layers)]
        self._cache = cache
        self._share = spec.heads // spec.kv_heads
        self._long = LONG // 2 if spec.head_dim > WIDE else LONG
        # Where all layers have windows, a sequence may be longer than the pool, and so is its block table.
        forgets = places is not None and all(rule.window is not None for rule in self._rules)
        longest = spec.max_positions if forgets else min(cache.slots, spec.max_positions)
        self._most_blocks = -(-longest // unit)
        self._cascade = cascade
        self._device = context.device
        self._bound = BoundAttention(self._lanes, self._rules, cache.block_size, self._table_of)
        self._shaped: dict[StepShape, _Shaped] = {}

    def move(self, moves: Sequence[Move]) -> None:
        self._copier.carry_out(moves)

    def bind(self, plan: Plan) -> None:
        chunks, size, groups = plan.chunks, self._cache.block_size, self._tables(plan)
        prefixes = self._prefixes(chunks, groups[0])
        starts, lengths = np.array([(chunk.start, len(chunk.tokens)) for chunk in chunks]).T
        launches, writes = [], []
        for tables in groups:
            slots = slots_table(tables, size)
            launches.append(tiles_of(chunks, slots, size, self._share, self._device, prefixes, self._long))
            written = written_slots(slots, starts, lengths, size).astype(np.int32)
            writes.append(to_device(written, self._device))
        self._bound = replace(self._bound, launches=launches, written=writes)

    def shape(self, plan: Plan) -> StepShape | None:
        """The shape of a decoding step, or of one with equally many draft tokens for every sequence.

        None for other steps, and if a shared prefix is read once.
        """
        if self._cascade and self._prefixes(plan.chunks, self._tables(plan)[0]):
            return None
        return shape_of(plan.chunks, self._share)

    def bind_to(self, plan: Plan, shape: StepShape) -> BoundAttention:
        size, groups = self._cache.block_size, self._tables(plan)
        shaped = self._shaped.get(shape)
        if shaped is None:
            steps = [ShapedStep(shape, self._share, self._most_blocks, self._device) for _ in groups]
            launches, written = [[step.tiles] for step in steps], [step.written for step in steps]
            shaped = _Shaped(steps, replace(self._bound, launches=launches, written=written))
            self._shaped[shape] = shaped
        for step, tables in zip(shaped.groups, groups, strict=True):
            step.fill(plan.chunks, slots_table(tables, size), size, self._device)
        return shaped.attention

    def __call__(
        self, layer: int, q: Tensor, k: Tensor | None, v: Tensor | None, sinks: Tensor | None = None
    ) -> Tensor:
        return self._bound(layer, q, k, v, sinks)

    def rotating(
        self,
        layer: int,
        q: Tensor,
        k: Tensor | None,
        v: Tensor | None,
        cos: Tensor,
        sin: Tensor,
        sinks: Tensor | None = None,
    ) -> Tensor:
        return self._bound.rotating(layer, q, k, v, cos, sin, sinks)

    def _prefixes(self, chunks: Sequence[Chunk], tables: Sequence[BlockTable]) -> list[SharedPrefix]:
        if not self._cascade:
            return []
        short = [number for number, chunk in enumerate(chunks) if len(chunk.tokens) * self._share <= SHORT]
        return shared_prefixes(chunks, tables, short, self._cache.block_size, self._cascade)

    def _tables(self, plan: Plan) -> list[list[BlockTable]]:
        """Of each KV group: the block tables of the chunks' sequences."""
        return [[tables[chunk.sequence.id] for chunk in plan.chunks] for tables in self._cache.group_tables]

    def _place(self, layer: int) -> tuple[Sequence[Tensor], int]:
        """The tensors with a layer's keys and values, and its number there."""
        storage, number = self.storage.place(layer)
        return storage.tensors, number


class _Shaped(NamedTuple):
    """All steps of one shape."""

    groups: Sequence[ShapedStep]
    """Of each KV group."""
    attention: BoundAttention


def lanes_of(tensors: Sequence[Tensor], layer: int, stored: KVDtype) -> Lanes:
    """One layer of a storage's tensors, as the kernels take it."""
    if stored in ("auto", "bfloat16"):
        k, v = (tensor[layer] for tensor in tensors)
        return Lanes(k, v)
    codes, scales = (tensor[layer] for tensor in tensors)
    (k, v), (k_scales, v_scales) = codes.chunk(2, dim=1), scales.chunk(2, dim=1)
    return Lanes(k, v, k_scales, v_scales, fp8=stored == "fp8")
