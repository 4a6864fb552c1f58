"""Host half of the paged backend: block tables, prefix sharing, copy-on-write, swapping. Integers only.

A pool of equal blocks (Kwon et al., "PagedAttention", SOSP 2023). A sequence's block table maps its
positions to blocks; a block whose tokens are final is known by the hash of all tokens up to its end, so
whoever starts with the same tokens attaches to it, also after its holder is gone, until it is evicted.

::

    position   0 .. 15   16 .. 31   32 .. 47
    table        [ 7,        2,         9 ]      block 7 and 2: committed, known by a key, maybe shared
                                                 block 9: the tail, written in place when its only holder
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from turnout.core.interfaces.eviction import EvictionPolicy
from turnout.core.interfaces.kv import PoolSize, PrefixPins, Span
from turnout.core.types.messages import KVSnapshot
from turnout.core.types.plan import Move
from turnout.core.types.request import Sequence as TokenSequence
from turnout.plugins.kv_backends.paged.host.attach import Arrival, Arrivals
from turnout.plugins.kv_backends.paged.host.block_tables import Table, Tables
from turnout.plugins.kv_backends.paged.host.blocks import CACHED, SHARED, Blocks
from turnout.plugins.kv_backends.paged.host.pinned_prefixes import PagedPins
from turnout.plugins.kv_backends.paged.host.prefix_lookup import Lookup
from turnout.plugins.kv_backends.paged.host.snapshot import computed_positions, runs
from turnout.plugins.kv_backends.paged.host.swap import Holding, SwapBlocks

__all__ = ["PagedCache"]


class PagedCache:
    """Which sequence holds which blocks."""

    def __init__(
        self, size: PoolSize, block_size: int, eviction: EvictionPolicy, *, prefix_caching: bool = True
    ) -> None:
        self.block_size = block_size
        self.capacity = size.tokens // block_size * block_size
        self.swap = size.swap // block_size * block_size
        """Positions of host memory."""
        self._blocks = Blocks(size.tokens // block_size, eviction)
        self._tables = Tables(self._blocks, block_size)
        self.tables = self._tables.of
        """Sequence id to its blocks, read by the device half."""
        self._swap = SwapBlocks(size.swap // block_size, block_size)
        self._lookup = Lookup(self._blocks, self._swap, block_size)
        self._arrivals = Arrivals(self._blocks, block_size)
        self._pins = PagedPins(self._blocks, block_size) if prefix_caching else None
        self._prefix_caching = prefix_caching
        self._chains = self._lookup.chains
        self._holders: dict[int, TokenSequence] = {}
        self._moves: list[Move] = []
        self._lookups = self._hits = 0

    # -------------------------------------------------------------- queries

    @property
    def free(self) -> int:
        return self._blocks.idle * self.block_size

    @property
    def prefixes(self) -> PrefixPins | None:
        return self._pins

    def holds(self, length: int, sequences: int) -> bool:
        return sequences * -(-length // self.block_size) * self.block_size <= self.capacity

    def cached(self, sequence: TokenSequence) -> int:
        return self._lookup.cached(sequence)

    def swappable(self, sequences: Sequence[TokenSequence]) -> int:
        return self._swap.cost(self._holdings(sequences))

    def fits(self, spans: Sequence[Span]) -> bool:
        return self._tables.cover(spans) or self._have_room(spans, self._find(spans))

    # -------------------------------------------------------------- transitions

    def reserve(self, spans: Sequence[Span]) -> bool:
        if self._tables.cover(spans) or self._tables.lengthen(spans):
            return True
        arrivals = self._find(spans)
        if not self._have_room(spans, arrivals):
            return False
        tables = self._arrivals.tables(arrivals, self._moves)
        for arrival, table in zip(arrivals, tables, strict=True):
            self._settle(arrival.span, table)
        for span in spans:
            self._tables.extend(span, self._moves)
        return True

    def commit(self, sequence: TokenSequence, upto: int) -> None:
        if not self._prefix_caching:
            return
        chain = self._chains[sequence.id]
        known = len(chain)
        if upto < (known + 1) * self.block_size:
            return
        self._lookup.extend(sequence, upto // self.block_size)
        self._share(sequence, known)

    def fork(self, parent: TokenSequence, child: TokenSequence) -> None:
        self._tables.fork(parent.id, child.id)
        self._chains[child.id] = list(self._chains[parent.id])
        self._holders[child.id] = child

    def release(self, sequences: Iterable[TokenSequence], *, swap_out: bool = False) -> None:
        sequences = list(sequences)
        moves = self._swap.swap_out(self._holdings(sequences)) if swap_out else None
        self._moves += moves or ()
        for sequence in sequences:
            self._let_go(sequence)
            if moves is None:
                self._swap.leave(sequence.id)
            if self._swap.of(sequence.id) is None:
                self._chains.pop(sequence.id, None)

    def drain(self) -> list[Move]:
        moves, self._moves = self._moves, []
        return moves

    def snapshot(self) -> KVSnapshot:
        blocks, size = self._blocks, self.block_size
        held = self.capacity // size - blocks.idle
        holders = ((sequence, self.tables[number]) for number, sequence in self._holders.items())
        pinned = self._pins.keys() if self._pins else ()
        return KVSnapshot(
            capacity=self.capacity,
            free=self.free,
            held=held * size,
            shared=blocks.states.count(SHARED) * size,
            computed=computed_positions(held, holders, size),
            cached=blocks.states.count(CACHED) * size,
            pinned=sum(key in blocks.block_of for key in pinned) * size,
            swap=self.swap,
            swapped=self._swap.used * size,
            lookups=self._lookups,
            hits=self._hits,
            evictions=blocks.evictions * size,
            unit=size,
            states=runs(blocks.states),
        )

    # -------------------------------------------------------------- details

    def _find(self, spans: Sequence[Span]) -> list[Arrival]:
        return [self._lookup.arrival(span) for span in spans if span.sequence.id not in self.tables]

    def _have_room(self, spans: Sequence[Span], arrivals: Sequence[Arrival]) -> bool:
        return self._arrivals.needed(arrivals) + self._tables.needed(spans) <= self._blocks.idle

    def _settle(self, span: Span, table: Table) -> None:
        sequence, start, _ = span
        self.tables[sequence.id] = table
        self._holders[sequence.id] = sequence
        del self._chains.setdefault(sequence.id, [])[start // self.block_size :]
        if self._swap.of(sequence.id):
            self._share(sequence, 0)
            self._swap.leave(sequence.id)
        if self._prefix_caching and sequence.request.timing.scheduled is None:
            prompt = len(sequence.request.prompt)
            self._lookups += prompt
            self._hits += min(start, prompt)

    def _share(self, sequence: TokenSequence, first: int) -> None:
        """Let its blocks from the `first` on be found under their keys."""
        chain, table = self._chains[sequence.id], self.tables[sequence.id]
        for index in range(first, len(chain)):
            self._blocks.share(table[index], chain[index])

    def _holdings(self, sequences: Iterable[TokenSequence]) -> list[Holding]:
        return [
            Holding(s.id, self.tables[s.id], self._chains[s.id], s.computed)
            for s in sequences
            if s.id in self.tables
        ]

    def _let_go(self, sequence: TokenSequence) -> None:
        if sequence.id in self.tables:
            del self._holders[sequence.id]
            self._tables.drop(sequence.id, len(self._chains[sequence.id]) * self.block_size)
