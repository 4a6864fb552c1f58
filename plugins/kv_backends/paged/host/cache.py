"""Host half of the paged backend: block tables, prefix sharing, copy-on-write, swapping. Integers only.

A pool of equal blocks (Kwon et al., "PagedAttention", SOSP 2023). A sequence's block table maps its
positions to blocks; a block whose tokens are final is registered by the hash of all tokens up to its end, so
a sequence that starts with the same tokens attaches it, also after its holder is gone, until it is evicted.

::

    position   0 .. 15   16 .. 31   32 .. 47
    table        [ 7,        2,         9 ]      blocks 7 and 2: committed, registered by hash, maybe shared
                                                 block 9: the tail, written in place by its only holder
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from turnout.core.interfaces.eviction import EvictionPolicy
from turnout.core.interfaces.kv import PoolSize, PrefixPins, Span
from turnout.core.types.messages import KVSnapshot
from turnout.core.types.plan import Move
from turnout.core.types.request import Sequence as TokenSequence
from turnout.plugins.kv_backends.paged.host.attach import Attacher, Attachment
from turnout.plugins.kv_backends.paged.host.block_tables import BlockTable, SequenceTables
from turnout.plugins.kv_backends.paged.host.blocks import CACHED, SHARED, BlockPool
from turnout.plugins.kv_backends.paged.host.pinned_prefixes import PagedPrefixPins
from turnout.plugins.kv_backends.paged.host.snapshot import computed_positions, runs
from turnout.plugins.kv_backends.paged.host.swap import BlockHolding, SwapBlocks

__all__ = ["PagedCache"]


class PagedCache:
    """Keeps account of the blocks that sequences hold; implements KVCache."""

    def __init__(
        self, size: PoolSize, block_size: int, eviction: EvictionPolicy, *, prefix_caching: bool = True
    ) -> None:
        self.block_size = block_size
        self.capacity = size.tokens // block_size * block_size
        self.swap = size.swap // block_size * block_size
        """Positions of host memory."""
        self._blocks = BlockPool(size.tokens // block_size, eviction)
        self._tables = SequenceTables(self._blocks, block_size)
        self.tables = self._tables.of
        """The block table of each sequence id, read by the device half."""
        self._swap = SwapBlocks(size.swap // block_size, block_size)
        self._attacher = Attacher(self._blocks, self._swap, block_size)
        self._pins = PagedPrefixPins(self._blocks, block_size) if prefix_caching else None
        self._prefix_caching = prefix_caching
        self._hashes = self._attacher.hashes
        self._holders: dict[int, TokenSequence] = {}
        self._moves: list[Move] = []
        self._lookups = self._hits = 0

    # -------------------------------------------------------------- queries

    @property
    def free(self) -> int:
        return self._blocks.available * self.block_size

    @property
    def prefixes(self) -> PrefixPins | None:
        return self._pins

    def holds(self, length: int, sequences: int) -> bool:
        return sequences * -(-length // self.block_size) * self.block_size <= self.capacity

    def cached(self, sequence: TokenSequence) -> int:
        return self._attacher.cached(sequence)

    def swappable(self, sequences: Sequence[TokenSequence]) -> int:
        return self._swap.cost(self._holdings(sequences))

    def fits(self, spans: Sequence[Span]) -> bool:
        return self._tables.covers(spans) or self._have_room(spans, self._attachments(spans))

    # -------------------------------------------------------------- transitions

    def reserve(self, spans: Sequence[Span]) -> bool:
        if self._tables.covers(spans) or self._tables.append_block(spans):
            return True
        attachments = self._attachments(spans)
        if not self._have_room(spans, attachments):
            return False
        tables = self._attacher.tables(attachments, self._moves)
        for attachment, table in zip(attachments, tables, strict=True):
            self._enter(attachment.span, table)
        for span in spans:
            self._tables.extend(span, self._moves)
        return True

    def commit(self, sequence: TokenSequence, upto: int) -> None:
        if not self._prefix_caching:
            return
        hashes = self._hashes[sequence.id]
        committed = len(hashes)
        if upto < (committed + 1) * self.block_size:
            return
        self._attacher.extend_hashes(sequence, upto // self.block_size)
        self._register(sequence, committed)

    def fork(self, parent: TokenSequence, child: TokenSequence) -> None:
        self._tables.fork(parent.id, child.id)
        self._hashes[child.id] = list(self._hashes[parent.id])
        self._holders[child.id] = child

    def release(self, sequences: Iterable[TokenSequence], *, swap_out: bool = False) -> None:
        sequences = list(sequences)
        moves = self._swap.swap_out(self._holdings(sequences)) if swap_out else None
        self._moves += moves or ()
        for sequence in sequences:
            self._release_blocks(sequence)
            if moves is None:
                self._swap.forget(sequence.id)
            if self._swap.of(sequence.id) is None:
                self._hashes.pop(sequence.id, None)

    def drain(self) -> list[Move]:
        moves, self._moves = self._moves, []
        return moves

    def snapshot(self) -> KVSnapshot:
        blocks, size = self._blocks, self.block_size
        held = self.capacity // size - blocks.available
        holders = ((sequence, self.tables[number]) for number, sequence in self._holders.items())
        pinned = self._pins.hashes() if self._pins else ()
        return KVSnapshot(
            capacity=self.capacity,
            free=self.free,
            held=held * size,
            shared=blocks.states.count(SHARED) * size,
            computed=computed_positions(held, holders, size),
            cached=blocks.states.count(CACHED) * size,
            pinned=sum(block_hash in blocks.block_of for block_hash in pinned) * size,
            swap=self.swap,
            swapped=self._swap.used * size,
            lookups=self._lookups,
            hits=self._hits,
            evictions=blocks.evictions * size,
            unit=size,
            states=runs(blocks.states),
        )

    # -------------------------------------------------------------- details

    def _attachments(self, spans: Sequence[Span]) -> list[Attachment]:
        return [self._attacher.attachment(span) for span in spans if span.sequence.id not in self.tables]

    def _have_room(self, spans: Sequence[Span], attachments: Sequence[Attachment]) -> bool:
        needed = self._attacher.blocks_needed(attachments) + self._tables.blocks_needed(spans)
        return needed <= self._blocks.available

    def _enter(self, span: Span, table: BlockTable) -> None:
        """Enters a sequence that got its first memory into the books."""
        sequence, start, _ = span
        self.tables[sequence.id] = table
        self._holders[sequence.id] = sequence
        del self._hashes.setdefault(sequence.id, [])[start // self.block_size :]
        if self._swap.of(sequence.id):
            self._register(sequence, 0)
            self._swap.forget(sequence.id)
        if self._prefix_caching and sequence.request.timing.scheduled is None:
            prompt = len(sequence.request.prompt)
            self._lookups += prompt
            self._hits += min(start, prompt)

    def _register(self, sequence: TokenSequence, first: int) -> None:
        """Lets the sequence's blocks from `first` on be found by their hashes."""
        hashes, table = self._hashes[sequence.id], self.tables[sequence.id]
        for index in range(first, len(hashes)):
            self._blocks.register(table[index], hashes[index])

    def _holdings(self, sequences: Iterable[TokenSequence]) -> list[BlockHolding]:
        return [
            BlockHolding(s.id, self.tables[s.id], self._hashes[s.id], s.computed)
            for s in sequences
            if s.id in self.tables
        ]

    def _release_blocks(self, sequence: TokenSequence) -> None:
        if sequence.id in self.tables:
            del self._holders[sequence.id]
            self._tables.release(sequence.id, len(self._hashes[sequence.id]) * self.block_size)
