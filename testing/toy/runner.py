"""A device whose KV memory holds the tokens: a wrong block table or a missed copy changes the outputs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from turnout.core.interfaces.kv import KVCache, PoolSize
from turnout.core.types.plan import Logits, Plan, Way
from turnout.core.types.request import Sequence as TokenSequence
from turnout.plugins.evictions.lru import Lru
from turnout.plugins.kv_backends.contiguous.cache import ContiguousCache
from turnout.plugins.kv_backends.paged.host.cache import PagedCache
from turnout.testing.toy.model import VOCABULARY, toy_logits

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["Model", "ToyRunner", "as_lists", "as_tensor", "resolve_tokens", "slots_of", "toy_kv"]

Model = Callable[[Sequence[int]], list[float]]
"""From the tokens so far to a row of logits, [VOCABULARY]."""


def toy_kv(blocks: int, block_size: int, *, swap: int = 0, **options: Any) -> PagedCache:
    """A paged cache with a pool of `blocks` blocks, and `swap` blocks of host memory."""
    size = PoolSize(blocks * block_size, swap * block_size)
    return PagedCache(size, block_size, Lru(), **options)


def slots_of(kv: KVCache, sequence: TokenSequence, length: int) -> list[int]:
    """The slots of a sequence's first `length` positions in the pool of a built-in backend."""
    if isinstance(kv, ContiguousCache):
        start = kv.slabs[sequence.id].start
        return list(range(start, start + length))
    assert isinstance(kv, PagedCache)
    table, size = kv.tables[sequence.id], kv.block_size
    return [table[p // size] * size + p % size for p in range(length)]


def resolve_tokens(tokens: Sequence[int], plan: Plan) -> list[int]:
    """The `tokens` of a plan, with those that so far only the device knows."""
    chosen = [int(token) for part in plan.chosen for token in part]
    return [token if token >= 0 else chosen[-1 - token] for token in tokens]


def as_lists(rows: list[list[float]]) -> Tensor:
    """Lists in place of a tensor, for strategies that need none, so that torch is not imported."""
    return rows  # type: ignore[return-value]


def as_tensor(rows: list[list[float]]) -> Tensor:
    import torch

    return torch.tensor(rows).reshape(-1, VOCABULARY)


@dataclass
class ToyRunner:
    """A device: the pool's slots hold tokens. Implements Runner."""

    kv: KVCache
    model: Model = toy_logits
    values: Callable[[list[list[float]]], Tensor] = as_lists
    pool: dict[int, int] = field(default_factory=dict)
    host: dict[int, int] = field(default_factory=dict)

    def run(self, plan: Plan) -> Logits:
        for move in plan.moves:
            self._move(*move)
        for chunk in plan.chunks:
            slots = slots_of(self.kv, chunk.sequence, chunk.end)[chunk.start :]
            self.pool.update(zip(slots, resolve_tokens(chunk.tokens, plan), strict=True))
        values: list[list[float]] = []
        rows: dict[TokenSequence, range] = {}
        for chunk in plan.chunks:
            if not chunk.rows:
                continue
            read = [self.pool[slot] for slot in slots_of(self.kv, chunk.sequence, chunk.end)]
            rows[chunk.sequence] = range(len(values), len(values) + chunk.rows)
            values += [self.model(read[: chunk.end - chunk.rows + 1 + row]) for row in range(chunk.rows)]
        return Logits(self.values(values), rows, hidden=self._hidden(plan))

    def _hidden(self, plan: Plan) -> dict[TokenSequence, Tensor]:
        """The hidden states that are pooled: of each position, the token in memory and the sum up to it."""
        pooled = [chunk for chunk in plan.chunks if chunk.pooled is not None]
        if not pooled:
            return {}
        import torch

        found = {}
        for chunk in pooled:
            read = [self.pool[slot] for slot in slots_of(self.kv, chunk.sequence, chunk.end)]
            states = [[float(read[at]), float(sum(read[: at + 1]))] for at in chunk.pooled or ()]
            found[chunk.sequence] = torch.tensor(states).reshape(-1, 2)
        return found

    def _move(self, source: int, target: int, length: int, way: Way) -> None:
        read = self.host if way == "swap_in" else self.pool
        written = self.host if way == "swap_out" else self.pool
        copied = [read[source + offset] for offset in range(length)]
        written.update(zip(range(target, target + length), copied, strict=True))
