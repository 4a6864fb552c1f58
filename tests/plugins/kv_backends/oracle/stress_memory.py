"""What lies in KV memory, to be held against brute force: the next reader would see it."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import NamedTuple

import torch
from brute_force import Context, Rows
from torch import Tensor

from turnout.core.engine.engine import Engine
from turnout.core.types.request import Sequence as TokenSequence
from turnout.plugins.kv_backends.contiguous.cache import ContiguousCache
from turnout.plugins.kv_backends.paged.host.block_hashes import extend_hashes, key_of
from turnout.plugins.kv_backends.paged.host.cache import PagedCache
from turnout.plugins.kv_backends.storage.grouped_attention import GroupedAttention

__all__ = ["Finding", "Memory"]


class Finding(NamedTuple):
    """What was found of the last positions of a context."""

    context: Context
    memory: Rows
    """[positions, numbers]: as many as it has rows."""
    columns: slice
    """Which of a position's numbers these are: those of one layer."""


class Memory:
    """The pool of either backend, by sequence and by key."""

    def __init__(self, kv: PagedCache | ContiguousCache, attention: GroupedAttention, layers: int) -> None:
        self._kv = kv
        self._storage = attention.storage
        self._layers = layers
        self._table_of = attention._table_of

    def held(self, engine: Engine) -> Iterator[Finding]:
        """What is computed of the running sequences."""
        for request in engine.scheduler.queues.running:
            for sequence in request.live:
                if sequence.held and sequence.computed:
                    yield from (self._of(sequence, layer) for layer in range(self._layers))

    def keyed(self, computed: Mapping[str, Collection[Context]]) -> tuple[list[Finding], int]:
        """The blocks that a key finds, and how many keys none of what was ever `computed`, by salt, has."""
        if isinstance(self._kv, ContiguousCache):
            return [], 0
        known, size = dict(self._kv._blocks.block_of), self._kv.block_size
        found = []
        for salt, contexts in computed.items():
            for context in contexts:
                if len(context) % size == 0:
                    own = extend_hashes([], context, salt, size, len(context) // size)[-1]
                    keys = {table: key_of(own, table) for table in self._table_of}
                    blocks = {table: known.pop(key, None) for table, key in keys.items()}
                    for layer, table in enumerate(self._table_of):
                        if (block := blocks[table]) is not None:
                            found.append(self._finding(context, layer, torch.tensor([block])))
        return found, len(known)

    def keys_ahead(self, engine: Engine) -> list[TokenSequence]:
        """Those known by keys of blocks that they have not computed."""
        if isinstance(self._kv, ContiguousCache):
            return []
        chains, size = self._kv._hashes, self._kv.block_size
        live = (sequence for request in engine.scheduler.queues.running for sequence in request.live)
        return [each for each in live if each.held and len(chains[each.id]) * size > each.computed]

    def _of(self, sequence: TokenSequence, layer: int) -> Finding:
        context, computed = tuple(sequence.tokens[: sequence.computed]), sequence.computed
        if isinstance(self._kv, ContiguousCache):
            start = self._kv.slabs[sequence.id].start
            return self._finding(context, layer, slice(start, start + computed))
        size, tables = self._kv.block_size, self._kv._groups[self._table_of[layer]]
        first = tables.first(sequence.id)
        table = tables.of[sequence.id][first : -(-computed // size)]
        found = self._finding(context, layer, torch.tensor(table))
        return found._replace(memory=found.memory[: computed - first * size])

    @torch.inference_mode()
    def _finding(self, context: Context, layer: int, where: Tensor | slice) -> Finding:
        parts = [rows.flatten(1) for rows in self._storage.read(layer, where)]
        memory = torch.cat(parts, dim=1).numpy()
        width = memory.shape[1]
        return Finding(context, memory, slice(layer * width, (layer + 1) * width))
