"""A ragged batch over a paged pool, by the kernel and by the textbook in float64."""

from __future__ import annotations

import random
from array import array
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from turnout.core.interfaces.compute import ComputeContext
from turnout.core.types.layer_attention import LayerAttention
from turnout.core.types.plan import Chunk, Plan
from turnout.plugins.kv_backends.paged.device.kernel_attention import PagedKernels
from turnout.plugins.kv_backends.paged.host.block_tables import BlockTable
from turnout.plugins.kv_backends.storage.dtypes import KVDtype

__all__ = ["DECODING", "MIXED", "Case"]

DECODING = [(1, 1), (15, 1), (16, 1), (17, 1), (0, 1), (70, 1), (33, 1)]
"""Empty contexts, full last blocks, and blocks with one token."""
MIXED = [(5, 1), (0, 40), (37, 3), (64, 70), (16, 1), (3, 16)]
"""Decoding, prompts, verification and chunks behind a cached prefix, side by side."""

TOLERANCE = {torch.float32: 2e-6, torch.bfloat16: 3e-2, torch.float16: 2e-3}
"""bfloat16: of 2^-8 for each rounding, since Triton's interpreter cuts off where a GPU rounds."""


@dataclass
class Tables:
    """What the device half asks of a host half: blocks in no order, and none of them zero."""

    block_size: int
    capacity: int
    tables: dict[int, BlockTable]
    swap_slots: int = 0

    @property
    def slots(self) -> int:
        return self.capacity

    @property
    def group_tables(self) -> list[dict[int, BlockTable]]:
        return [self.tables]


@dataclass(eq=False)
class Numbered:
    id: int


@dataclass
class Case:
    """Sequences with some context in the pool, and what the next step computes of each."""

    heads: int
    kv_heads: int
    dim: int
    block_size: int
    spans: list[tuple[int, int]]
    """(tokens in the pool, tokens to compute)."""
    dtype: torch.dtype = torch.float32
    stored: KVDtype = "auto"
    shared: dict[int, int] = field(default_factory=dict)
    """Sequences that begin with as many blocks of the sequence before them."""
    cascade: int = 0
    shaped: bool = False
    """Bound to a shape, as steps are that are captured, with rows of no sequence."""
    size: float = 1.0
    """Of values, and so of what is attended."""
    scale: float | None = None
    window: int | None = None
    softcap: float | None = None
    sinks: bool = False

    @property
    def rule(self) -> LayerAttention:
        more = {"scale": self.scale, "window": self.window, "softcap": self.softcap, "sinks": self.sinks}
        return LayerAttention(self.heads, self.kv_heads, self.dim, self.dim, **more)  # type: ignore[arg-type]

    def run(self, device: torch.device) -> tuple[Tensor, Tensor]:
        """What the kernel makes of it, and the reference, both float64 [tokens, heads, dim]."""
        backend, cache, queries, attend = self._bound(device)
        return attend().double(), self._reference(backend, cache, queries)

    def prepare(self, device: torch.device) -> Callable[[], Tensor]:
        """All but the attention itself, which is what it returns."""
        *_, attend = self._bound(device)
        return attend

    def _bound(self, device: torch.device) -> tuple[PagedKernels, Tables, Tensor, Callable[[], Tensor]]:
        spec: Any = ModelSpecLike(1, self.heads, self.kv_heads, self.dim, self.rule)
        cache = self._tables()
        backend = PagedKernels(
            spec,
            cache,
            ComputeContext(device, self.dtype),
            self.stored,
            self.cascade,  # type: ignore[arg-type]
        )
        for tensor in backend.storage.tensors:
            if tensor.dtype.is_floating_point:
                tensor.fill_(float("nan"))  # a read of what was not written shall be found
        drawn = [self._draw(span, device) for span in self.spans]
        chunks = []
        for id, (past, new) in enumerate(self.spans):
            slots = torch.tensor([block * self.block_size for block in cache.tables[id]], device=device)
            slots = (slots[:, None] + torch.arange(self.block_size, device=device)).view(-1)[:past]
            backend.storage.write(0, slots, drawn[id][1][:past], drawn[id][2][:past])
            chunks.append(Chunk(Numbered(id), past, [0] * new, 1))  # type: ignore[arg-type]
        plan = Plan(chunks, [])
        q, k, v = (
            torch.cat([tensors[which][-new:] for tensors, (_, new) in zip(drawn, self.spans, strict=True)])
            for which in range(3)
        )
        if not self.shaped:
            backend.bind(plan)
            return backend, cache, q, lambda: backend(0, q, k, v, self._sinks(device))
        shape = backend.shape(plan)
        assert shape is not None
        attend, nobodys = backend.bind_to(plan, shape), shape.tokens - len(q)
        padded = [torch.nn.functional.pad(x, (0, 0, 0, 0, 0, nobodys), value=float("nan")) for x in (q, k, v)]
        return backend, cache, q, lambda: attend(0, *padded, self._sinks(device))[: len(q)]

    def _sinks(self, device: torch.device) -> Tensor | None:
        if not self.sinks:
            return None
        return torch.randn(self.heads, generator=torch.Generator().manual_seed(5)).to(device)

    def reads_once(self, device: torch.device) -> list[int]:
        """How long the prefixes are that are read once for several sequences."""
        backend, *_ = self._bound(device)
        prefixes = [tiles.prefix for tiles in backend._bound.launches[0] if tiles.prefix]
        return [length for prefix in prefixes for length in prefix.tiles.starts.tolist()]

    def check(self, device: torch.device) -> None:
        """Raises AssertionError where they differ."""
        found, expected = self.run(device)
        tolerance = TOLERANCE[self.dtype]
        torch.testing.assert_close(found / self.size, expected / self.size, atol=tolerance, rtol=tolerance)

    def _draw(self, span: tuple[int, int], device: torch.device) -> list[Tensor]:
        """Queries, keys and values of a sequence, the same in whatever batch it is."""
        draw = torch.Generator(device).manual_seed(1000 * span[0] + span[1])
        shapes = [(span[1], self.heads, self.dim), *[(sum(span), self.kv_heads, self.dim)] * 2]
        q, k, v = (torch.randn(shape, generator=draw, device=device).to(self.dtype) for shape in shapes)
        return [q, k, v * self.size]

    def _tables(self) -> Tables:
        rng = random.Random(1)
        counts = [-(-(past + new) // self.block_size) for past, new in self.spans]
        blocks = list(range(1, sum(counts) + 3))
        rng.shuffle(blocks)
        tables = {id: array("i", [blocks.pop() for _ in range(count)]) for id, count in enumerate(counts)}
        for id, count in self.shared.items():
            tables[id][:count] = tables[id - 1][:count]
        return Tables(self.block_size, (sum(counts) + 3) * self.block_size, tables)

    def _reference(self, backend: PagedKernels, cache: Tables, queries: Tensor) -> Tensor:
        """Over what the storage has made of the context, so that its rounding is not the kernel's error."""
        out, first = [], 0
        for id, (past, new) in enumerate(self.spans):
            where = torch.tensor(cache.tables[id], device=queries.device)
            k, v = (t[: past + new].double() for t in backend.storage.read(0, where))
            q = queries[first : first + new].double()
            share = self.heads // self.kv_heads
            k, v = k.repeat_interleave(share, 1), v.repeat_interleave(share, 1)
            scores = torch.einsum("qhd,khd->hqk", q, k) * self.rule.effective_scale
            if self.softcap is not None:
                scores = self.softcap * torch.tanh(scores / self.softcap)
            at = (past + torch.arange(new, device=q.device))[:, None]
            places = torch.arange(past + new, device=q.device)
            hidden = (places > at) | (places <= at - (self.window or past + new))
            exponentials = scores.masked_fill(hidden, float("-inf")).exp()
            total = exponentials.sum(-1, keepdim=True)
            if (sinks := self._sinks(q.device)) is not None:
                total = total + sinks.double().exp()[:, None, None]
            weights = exponentials / total
            out.append(torch.einsum("hqk,khd->qhd", weights, v))
            first += new
        return torch.cat(out)


@dataclass
class ModelSpecLike:
    """As much of a `ModelSpec` as attention asks for."""

    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    rule: LayerAttention
    max_positions: int = 4096

    def layer_attention(self) -> tuple[LayerAttention, ...]:
        return (self.rule,) * self.layers
