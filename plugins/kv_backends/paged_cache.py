"""Host half of the paged backend: block tables, prefix sharing, copy-on-write, parking. Integers only.

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

from turnout.core.eviction import EvictionPolicy
from turnout.core.interfaces import PoolSize, PrefixPins, Span
from turnout.core.messages import KVSnapshot
from turnout.core.plan import Move
from turnout.core.request import Sequence as TokenSequence
from turnout.plugins.kv_backends.paged_blocks import CACHED, SHARED, Blocks
from turnout.plugins.kv_backends.paged_lookup import Arrival, Lookup
from turnout.plugins.kv_backends.paged_parking import Holding, Parking
from turnout.plugins.kv_backends.paged_pins import PagedPins
from turnout.plugins.kv_backends.paged_snapshot import computed_positions, runs

__all__ = ["PagedCache"]


class PagedCache:
    """Which sequence holds which blocks."""

    def __init__(
        self, size: PoolSize, block_size: int, eviction: EvictionPolicy, *, prefix_caching: bool = True
    ) -> None:
        self.block_size = block_size
        self.capacity = size.tokens // block_size * block_size
        self.parking = size.parking // block_size * block_size
        """Positions of host memory."""
        self.tables: dict[int, list[int]] = {}
        """Sequence id to its blocks, read by the device half."""
        self._blocks = Blocks(size.tokens // block_size, eviction)
        self._parking = Parking(size.parking // block_size, block_size)
        self._pins = PagedPins(self._blocks, block_size) if prefix_caching else None
        self._lookup = Lookup(self._blocks, self._parking, block_size)
        self._chains = self._lookup.chains
        self._prefix_caching = prefix_caching
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
        return sequences * self._count(length) * self.block_size <= self.capacity

    def cached(self, sequence: TokenSequence) -> int:
        return self._lookup.cached(sequence)

    def parkable(self, sequences: Sequence[TokenSequence]) -> int:
        return self._parking.cost(self._holdings(sequences))

    def fits(self, spans: Sequence[Span]) -> bool:
        return self._covered(spans) or self._needed(spans, self._arrivals(spans)) <= self._blocks.idle

    # -------------------------------------------------------------- transitions

    def reserve(self, spans: Sequence[Span]) -> bool:
        if self._covered(spans):
            return True
        arrivals = self._arrivals(spans)
        if self._needed(spans, arrivals) > self._blocks.idle:
            return False
        # Attach everything first: taking a block must not evict one that a later span counted on.
        for arrival in arrivals:
            self._attach(arrival)
        restored: dict[int, int] = {}
        for arrival in arrivals:
            self._restore(arrival, restored)
        for span in spans:
            self._own_tail(span)
            table = self.tables[span.sequence.id]
            table += [self._blocks.take() for _ in range(self._count(span.upto) - len(table))]
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
        self.tables[child.id] = list(self.tables[parent.id])
        self._chains[child.id] = list(self._chains[parent.id])
        self._holders[child.id] = child
        for block in self.tables[child.id]:
            self._blocks.hold(block)

    def release(self, sequences: Iterable[TokenSequence], *, keep: bool = False) -> None:
        sequences = list(sequences)
        moves = self._parking.park(self._holdings(sequences)) if keep else None
        self._moves += moves or ()
        for sequence in sequences:
            self._let_go(sequence)
            if moves is None:
                self._parking.leave(sequence.id)
            if self._parking.of(sequence.id) is None:
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
            parking=self.parking,
            parked=self._parking.used * size,
            lookups=self._lookups,
            hits=self._hits,
            evictions=blocks.evictions * size,
            unit=size,
            states=runs(blocks.states),
        )

    # -------------------------------------------------------------- counting

    def _count(self, tokens: int) -> int:
        """Blocks for so many tokens."""
        return -(-tokens // self.block_size)

    def _covered(self, spans: Sequence[Span]) -> bool:
        """One more token in a block of its own: what nearly every sequence asks in nearly every step."""
        holders, tables, size = self._blocks.holders, self.tables, self.block_size
        for sequence, start, upto in spans:
            table = tables.get(sequence.id)
            if table is None or upto - start != 1:
                return False
            index = start // size
            if index >= len(table) or holders[table[index]] != 1:
                return False
        return True

    def _arrivals(self, spans: Sequence[Span]) -> list[Arrival]:
        return [self._lookup.arrival(span) for span in spans if span.sequence.id not in self.tables]

    def _needed(self, spans: Sequence[Span], arrivals: Sequence[Arrival]) -> int:
        """Idle blocks that `reserve` would use up."""
        returning = sum(self._count(span.upto) - len(places) for span, places, _ in arrivals)
        return returning + self._needed_to_find(arrivals) + self._needed_to_go_on(spans)

    def _needed_to_find(self, arrivals: Sequence[Arrival]) -> int:
        """For what is in memory already: idle blocks held again, and what is parked restored."""
        revived, writers = set[int](), dict[int, int]()
        for span, places, parked in arrivals:
            for index, block in enumerate(places):
                if block is None:
                    writes = (index + 1) * self.block_size > span.start
                    writers[parked[index]] = writers.get(parked[index], 0) + writes
                elif not self._blocks.holders[block]:
                    revived.add(block)
        # What several find parked comes back once; those who write to it get a copy, the last one in place.
        return len(revived) + sum(max(1, count) for count in writers.values())

    def _needed_to_go_on(self, spans: Sequence[Span]) -> int:
        """For those that hold a table: longer ones, and copies of what they share and write to."""
        total, writers = 0, dict[int, int]()
        for span in spans:
            table = self.tables.get(span.sequence.id)
            if table is not None:
                total += max(0, self._count(span.upto) - len(table))
                for index in self._shared(span):
                    writers[table[index]] = writers.get(table[index], 0) + 1
        # Of those who write to a shared block, the last holder left writes in place.
        return total + sum(min(count, self._blocks.holders[block] - 1) for block, count in writers.items())

    def _shared(self, span: Span) -> list[int]:
        """Places in its table that a sequence is about to write to while others hold them too."""
        table = self.tables[span.sequence.id]
        first, last = span.start // self.block_size, min(self._count(span.upto), len(table))
        return [index for index in range(first, last) if self._blocks.holders[table[index]] > 1]

    # -------------------------------------------------------------- taking and giving back

    def _attach(self, arrival: Arrival) -> None:
        sequence, start, _ = arrival.span
        for block in arrival.places:
            if block is not None:
                self._blocks.attach(block)
        self._holders[sequence.id] = sequence
        del self._chains.setdefault(sequence.id, [])[start // self.block_size :]
        if self._prefix_caching and sequence.request.timing.scheduled is None:
            prompt = len(sequence.request.prompt)
            self._lookups += prompt
            self._hits += min(start, prompt)

    def _restore(self, arrival: Arrival, restored: dict[int, int]) -> None:
        """Give it its table, with what is parked of it brought back; `restored`: what others had brought."""
        (sequence, start, _), places, parked = arrival
        self.tables[sequence.id] = table = []
        for index, block in enumerate(places):
            if block is None:
                block = restored.get(parked[index])
                if block is None:
                    filled = min(self.block_size, start - index * self.block_size)
                    block = restored[parked[index]] = self._bring(parked[index], filled)
                else:
                    self._blocks.hold(block)
            table.append(block)
        if parked:
            self._share(sequence, 0)
            self._parking.leave(sequence.id)

    def _bring(self, parked: int, positions: int) -> int:
        block, size = self._blocks.take(), self.block_size
        self._moves.append(Move(parked * size, block * size, positions, "restore"))
        return block

    def _own_tail(self, span: Span) -> None:
        """Copy on write: what is shared and about to be written is replaced by a block of its own."""
        table, size = self.tables[span.sequence.id], self.block_size
        for index in self._shared(span):
            shared, fresh = table[index], self._blocks.take()
            filled = span.start - index * size
            if filled > 0:
                self._moves.append(Move(shared * size, fresh * size, min(filled, size)))
            self._blocks.drop(shared)
            table[index] = fresh

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
        table = self.tables.pop(sequence.id, None)
        if table is None:
            return
        del self._holders[sequence.id]
        reach = len(self._chains[sequence.id]) * self.block_size
        # Last block first: a prefix is of use from its start, so its end should be given up earlier.
        for block in reversed(table):
            self._blocks.drop(block, reach)
