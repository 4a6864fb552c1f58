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
from turnout.plugins.kv_backends.paged.host.block_hashes import extend_hashes
from turnout.plugins.kv_backends.paged.host.cache import PagedCache
from turnout.plugins.kv_backends.storage.grouped_attention import GroupedAttention

__all__ = ["Finding", "Memory"]


class Finding(NamedTuple):
    """What was found of the last positions of a context."""

    context: Context
    memory: Rows
    """[positions, numbers]: as many as it has rows."""


class Memory:
    """The pool of either backend, by sequence and by key."""

    def __init__(self, kv: PagedCache | ContiguousCache, attention: GroupedAttention, layers: int) -> None:
        self._kv = kv
        self._storage = attention.storage
        self._layers = layers

    def held(self, engine: Engine) -> Iterator[Finding]:
        """What is computed of the running sequences."""
        for request in engine.scheduler.queues.running:
            for sequence in request.live:
                if sequence.held and sequence.computed:
                    yield self._of(sequence)

    def keyed(self, computed: Mapping[str, Collection[Context]]) -> tuple[list[Finding], int]:
        """The blocks that a key finds, and how many keys none of what was ever `computed`, by salt, has."""
        if isinstance(self._kv, ContiguousCache):
            return [], 0
        known, size = dict(self._kv._blocks.block_of), self._kv.block_size
        found = []
        for salt, contexts in computed.items():
            for context in contexts:
                if len(context) % size == 0:
                    key = extend_hashes([], context, salt, size, len(context) // size)[-1]
                    if (block := known.pop(key, None)) is not None:
                        found.append(Finding(context, self._read(torch.tensor([block]))))
        return found, len(known)

    def keys_ahead(self, engine: Engine) -> list[TokenSequence]:
        """Those known by keys of blocks that they have not computed."""
        if isinstance(self._kv, ContiguousCache):
            return []
        chains, size = self._kv._hashes, self._kv.block_size
        live = (sequence for request in engine.scheduler.queues.running for sequence in request.live)
        return [each for each in live if each.held and len(chains[each.id]) * size > each.computed]

    def _of(self, sequence: TokenSequence) -> Finding:
        context, computed = tuple(sequence.tokens[: sequence.computed]), sequence.computed
        if isinstance(self._kv, ContiguousCache):
            start = self._kv.slabs[sequence.id].start
            return Finding(context, self._read(slice(start, start + computed)))
        table = self._kv.tables[sequence.id][: -(-computed // self._kv.block_size)]
        return Finding(context, self._read(torch.tensor(table))[:computed])

    @torch.inference_mode()
    def _read(self, where: Tensor | slice) -> Rows:
        parts: list[Tensor] = []
        for layer in range(self._layers):  # what is read is valid until the next call
            parts += [rows.flatten(1).clone() for rows in self._storage.read(layer, where)]
        return torch.cat(parts, dim=1).numpy()
