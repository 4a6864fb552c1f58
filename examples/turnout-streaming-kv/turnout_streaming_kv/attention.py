"""The device half: attends to sinks, window and the step's own tokens, then writes the latest of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from turnout.core.interfaces.attention import AttentionBackend
from turnout.core.interfaces.compute import ComputeContext
from turnout.core.types.model_spec import ModelSpec
from turnout.core.types.plan import Chunk, Move, Plan
from turnout_streaming_kv.rows import Layout, Rows

__all__ = ["WindowAttention"]


@dataclass(frozen=True)
class _Bound:
    """The indices that attention over one chunk needs, the same for all layers."""

    rows: slice
    """Rows of the chunk in the step's flat batch."""
    read: Tensor
    """Slots of the remembered positions, int64 [remembered]."""
    seen: Tensor
    """Which of the remembered and then the new positions each query sees, bool [new, remembered + new]."""
    kept: Tensor
    """Which of the new positions are written, counted from the first, int64 [kept]."""
    written: Tensor
    """Slots to write them to, int64 [kept]."""


class WindowAttention(AttentionBackend):
    """Computes attention over the keys and values of all rows, [layers, positions, kv_heads, head_dim]."""

    def __init__(self, spec: ModelSpec, rows: Rows, context: ComputeContext) -> None:
        shape = (spec.layers, rows.capacity, spec.kv_heads, spec.head_dim)
        self._keys = torch.zeros(shape, device=context.device, dtype=context.dtype)
        self._values = torch.zeros(shape, device=context.device, dtype=context.dtype)
        self._rows, self._device = rows, context.device
        self._bound: list[_Bound] = []

    def move(self, moves: Sequence[Move]) -> None:
        for source, target, length, _ in moves:
            for pool in (self._keys, self._values):
                pool[:, target : target + length] = pool[:, source : source + length]

    def bind(self, plan: Plan) -> None:
        self._bound, at = [], 0
        for chunk in plan.chunks:
            self._bound.append(self._bind(chunk, at))
            at += len(chunk.tokens)

    def __call__(
        self, layer: int, q: Tensor, k: Tensor | None, v: Tensor | None, sinks: Tensor | None = None
    ) -> Tensor:
        assert k is not None and v is not None, "the backend declares no attention features"
        keys, values = self._keys[layer], self._values[layer]
        outputs = []
        for bound in self._bound:
            new_keys, new_values = k[bound.rows], v[bound.rows]
            # Read before writing: a long chunk overwrites positions that its own first queries see.
            seen_keys = torch.cat([keys[bound.read], new_keys])
            seen_values = torch.cat([values[bound.read], new_values])
            outputs.append(_attend(q[bound.rows], seen_keys, seen_values, bound.seen))
            keys[bound.written], values[bound.written] = new_keys[bound.kept], new_values[bound.kept]
        return torch.cat(outputs)

    def _bind(self, chunk: Chunk, at: int) -> _Bound:
        layout, first = self._rows.layout, self._rows.row_of[chunk.sequence.id] * self._rows.layout.length
        remembered, kept = layout.remembered(chunk.start), layout.kept(chunk.start, chunk.end)
        return _Bound(
            rows=slice(at, at + len(chunk.tokens)),
            read=self._tensor([first + layout.slot(position) for position in remembered]),
            seen=self._seen(layout, remembered, chunk),
            kept=self._tensor([position - chunk.start for position in kept]),
            written=self._tensor([first + layout.slot(position) for position in kept]),
        )

    def _seen(self, layout: Layout, remembered: list[int], chunk: Chunk) -> Tensor:
        own = range(chunk.start, chunk.end)
        positions, queries = self._tensor([*remembered, *own]), self._tensor(list(own))[:, None]
        recent = positions > queries - layout.window
        return (positions <= queries) & (recent | (positions < layout.sinks))

    def _tensor(self, numbers: list[int]) -> Tensor:
        return torch.tensor(numbers, dtype=torch.int64, device=self._device)


def _attend(q: Tensor, k: Tensor, v: Tensor, seen: Tensor) -> Tensor:
    """q: [new, heads, head_dim]; k, v: [seen, kv_heads, head_dim]; returns [new, heads, head_dim]."""
    q, k, v = (x.transpose(0, 1)[None] for x in (q, k, v))
    out = torch.nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=seen, enable_gqa=True)
    return out[0].transpose(0, 1)
