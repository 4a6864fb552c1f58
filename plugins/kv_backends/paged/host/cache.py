"""Host half of the paged backend: block tables, prefix sharing, copy-on-write, swapping. Integers only.

A pool of equal blocks (Kwon et al., "PagedAttention", SOSP 2023). A sequence's block table maps its
positions to blocks; a block whose tokens are final is registered by the hash of all tokens up to its end, so
a sequence that starts with the same tokens attaches it, also after its holder is gone, until it is evicted.

::

    position   0 .. 15   16 .. 31   32 .. 47
    table        [ 7,        2,         9 ]      blocks 7 and 2: committed, registered by hash, maybe shared
                                                 block 9: the tail, written in place by its only holder

Layers of one window share tables, as those without one do: KV groups. A token position is then a slot for
each group, and all groups take blocks of the same pool.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from zlib import crc32

from turnout.core.interfaces.eviction import EvictionPolicy
from turnout.core.interfaces.kv import KVDigest, PoolSize, PrefixPins, Span
from turnout.core.types.block_events import BlockEvent
from turnout.core.types.messages import KVSnapshot
from turnout.core.types.plan import Move
from turnout.core.types.request import Sequence as TokenSequence
from turnout.plugins.kv_backends.paged.host.announcements import Announcements
from turnout.plugins.kv_backends.paged.host.attach import Attacher, Attachment
from turnout.plugins.kv_backends.paged.host.block_hashes import key_of
from turnout.plugins.kv_backends.paged.host.block_tables import SequenceTables
from turnout.plugins.kv_backends.paged.host.blocks import CACHED, SHARED, BlockPool
from turnout.plugins.kv_backends.paged.host.kv_groups import ONE_GROUP, most_blocks
from turnout.plugins.kv_backends.paged.host.pinned_prefixes import PagedPrefixPins
from turnout.plugins.kv_backends.paged.host.snapshot import computed_positions, group_states, runs
from turnout.plugins.kv_backends.paged.host.swap import BlockHolding, SwapBlocks
from turnout.plugins.kv_backends.paged.host.window_tables import WindowTables

__all__ = ["PagedCache"]


class PagedCache:
    """Keeps account of the blocks that sequences hold; implements KVCache."""

    def __init__(
        self,
        size: PoolSize,
        block_size: int,
        eviction: EvictionPolicy,
        *,
        prefix_caching: bool = True,
        windows: Sequence[int | None] = ONE_GROUP,
    ) -> None:
        """windows: of each group of layers; None: all positions are kept, as in the first, if in any."""
        self.block_size = block_size
        count, host = (len(windows) * tokens // block_size for tokens in (size.tokens, size.swap))
        self.slots, self.swap_slots = count * block_size, host * block_size
        """What the device half has memory for: positions of one group, in the pool and in host memory."""
        self.capacity = self.slots // len(windows)
        self.swap = self.swap_slots // len(windows)
        """Positions of host memory."""
        self._step = size.step
        self._blocks = BlockPool(count, eviction)
        self._groups = [
            SequenceTables(self._blocks, block_size, number)
            if window is None
            else WindowTables(self._blocks, block_size, number, window)
            for number, window in enumerate(windows)
        ]
        self._tables = self._groups[0]
        self._plain = len(windows) == 1 and windows[0] is None
        self.tables = self._tables.of
        """The block table of each sequence id, in the first group."""
        self.group_tables = [tables.of for tables in self._groups]
        """The block tables of all groups, read by the device half."""
        self._swap = SwapBlocks(host, block_size)
        self._attacher = Attacher(self._blocks, self._swap, block_size, self._groups)
        self._pins = PagedPrefixPins(self._blocks, block_size, self._groups) if prefix_caching else None
        self._prefix_caching = prefix_caching
        self._hashes = self._attacher.hashes
        self._holders: dict[int, TokenSequence] = {}
        self._moves: list[Move] = []
        self._lookups = self._hits = 0
        self._announcements: Announcements | None = None

    # -------------------------------------------------------------- queries

    @property
    def free(self) -> int:
        return self._blocks.available * self.block_size // len(self._groups)

    @property
    def prefixes(self) -> PrefixPins | None:
        return self._pins

    def holds(self, length: int, sequences: int) -> bool:
        blocks = sum(
            most_blocks(length, tables.window, self.block_size, self._step) for tables in self._groups
        )
        return sequences * blocks * self.block_size <= self.slots

    def cached(self, sequence: TokenSequence) -> int:
        return self._attacher.cached(sequence)

    def swappable(self, sequences: Sequence[TokenSequence]) -> int:
        return self._swap.cost(self._holdings(sequences))

    def fits(self, spans: Sequence[Span]) -> bool:
        return self._cover(spans) or self._have_room(spans, self._attachments(spans))

    def digests(self) -> KVDigest:
        sequences: dict[int, int] = {}
        for tables in self._groups:
            for number, table in tables.of.items():
                sequences[number] = crc32(table, sequences.get(number, 0))
        blocks = self._blocks
        parts = {
            "states of blocks": crc32(blocks.states),
            "registered blocks": len(blocks.block_of),
            "swapped blocks": self._swap.used,
        }
        return KVDigest(parts, sequences)

    # -------------------------------------------------------------- transitions

    def reserve(self, spans: Sequence[Span]) -> bool:
        # Nearly every sequence comes no further, in nearly every step: a comprehension here would put `self`
        # in a cell, and cost all of them a tenth.
        if self._plain:
            if self._tables.covers(spans) or self._tables.append_block(spans):
                return True
        elif self._cover(spans) or self._append_blocks(spans):
            return True
        return self._take(spans)

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
        for tables in self._groups:
            tables.fork(parent.id, child.id)
        self._hashes[child.id] = list(self._hashes[parent.id])
        self._holders[child.id] = child

    def release(self, sequences: Iterable[TokenSequence], *, swap_out: bool = False) -> None:
        sequences = list(sequences)
        moves = self._swap.swap_out(self._holdings(sequences)) if swap_out else None
        self._moves += moves or ()
        for sequence in sequences:
            self._release_blocks(sequence)
            if moves is None:
                self._swap.forget(sequence.id, len(self._groups))
            if self._swap.of(sequence.id) is None:
                self._hashes.pop(sequence.id, None)

    def drain(self) -> list[Move]:
        moves, self._moves = self._moves, []
        return moves

    def snapshot(self) -> KVSnapshot:
        blocks, parts = self._blocks, len(self._groups)
        size, free = self.block_size, self.free
        tables = [
            (sequence, each.of[number]) for each in self._groups for number, sequence in self._holders.items()
        ]
        held = self.slots // size - blocks.available
        pinned = self._pins.hashes() if self._pins else ()
        return KVSnapshot(
            capacity=self.capacity,
            free=free,
            held=self.capacity - free,
            shared=blocks.states.count(SHARED) * size // parts,
            computed=computed_positions(held, tables, size) // parts,
            cached=blocks.states.count(CACHED) * size // parts,
            passed=blocks.passed * size // parts,
            pinned=sum(key in blocks.block_of for key in pinned) * size // parts,
            swap=self.swap,
            swapped=self._swap.used * size // parts,
            lookups=self._lookups,
            hits=self._hits,
            evictions=self.evicted,
            unit=size,
            states=runs(blocks.states),
            groups=[] if self._plain else group_states(blocks, self._groups, size),
        )

    @property
    def evicted(self) -> int:
        return self._blocks.evictions * self.block_size // len(self._groups)

    def holdings(self) -> Iterator[tuple[TokenSequence, Sequence[int]]]:
        for number, sequence in self._holders.items():
            for tables in self._groups:
                table = tables.of[number]
                yield sequence, table[tables.first(number) :] if tables.window else table

    def pins(self) -> Iterator[tuple[str, list[int]]]:
        return self._pins.blocks() if self._pins is not None else iter(())

    @property
    def announces(self) -> bool:
        return self._prefix_caching

    def announce(self) -> None:
        if self._announcements is None:
            self._announcements = Announcements(self.block_size, self._blocks.block_of)
            self._blocks.on_forgotten = self._announcements.forgotten
        self._announcements.begin_anew()
        for sequence in self._holders.values():
            self._announce_prefix(sequence)

    def announced(self) -> list[BlockEvent]:
        return self._announcements.drain() if self._announcements is not None else []

    # -------------------------------------------------------------- details

    def _take(self, spans: Sequence[Span]) -> bool:
        """Reserves what is more than a token or a block."""
        attachments = self._attachments(spans)
        if not self._have_room(spans, attachments):
            return False
        begun = [span for span in spans if span.sequence.id not in self.tables]
        self._attacher.hold(attachments)
        self._let_go(spans)
        self._attach(attachments)
        for span in begun:
            self._enter(span)
        for tables in self._groups:
            for span in spans:
                tables.extend(span, self._moves)
        return True

    def _attachments(self, spans: Sequence[Span]) -> list[Attachment]:
        begun = [span for span in spans if span.sequence.id not in self.tables]
        return [attachment for span in begun for attachment in self._attacher.attachments(span)]

    def _cover(self, spans: Sequence[Span]) -> bool:
        if self._plain:
            return self._tables.covers(spans)
        return all(tables.covers(spans) for tables in self._groups)

    def _append_blocks(self, spans: Sequence[Span]) -> bool:
        """Appends a block of each group, if that is all that is needed and at hand; False: did nothing."""
        if self._blocks.available < len(self._groups) or not self._tables.ends_before(spans):
            return False
        self._let_go(spans)
        for tables in self._groups:
            tables.append_block(spans)
        return True

    def _have_room(self, spans: Sequence[Span], attachments: Sequence[Attachment]) -> bool:
        needed = self._attacher.blocks_needed(attachments)
        needed += sum(tables.blocks_needed(spans) for tables in self._groups)
        if needed > self._blocks.available and not self._plain:
            attached = {block for attachment in attachments for block in attachment.locations}
            needed -= sum(tables.passed(spans, attached) for tables in self._groups)
        return needed <= self._blocks.available

    def _let_go(self, spans: Sequence[Span]) -> None:
        for tables in self._groups:
            for span in spans:
                tables.let_go(span)

    def _attach(self, attachments: Sequence[Attachment]) -> None:
        """Begins the tables of sequences that get their first memory, for each group."""
        checkpoints = {each.span.sequence.id: self._attacher.checkpoints(each.span) for each in attachments}
        tables = self._attacher.tables(attachments, self._moves)
        for (span, _, first, group), table in zip(attachments, tables, strict=True):
            self._groups[group].enter(span.sequence.id, table, first, checkpoints[span.sequence.id])

    def _enter(self, span: Span) -> None:
        """Enters a sequence that got its first memory into the books."""
        sequence, start, _ = span
        self._holders[sequence.id] = sequence
        del self._hashes.setdefault(sequence.id, [])[start // self.block_size :]
        if self._swap.of(sequence.id):
            self._register(sequence, 0)
            self._swap.forget(sequence.id, len(self._groups))
        elif start and self._announcements is not None:
            self._announce_prefix(sequence)
        if self._prefix_caching and sequence.request.timing.scheduled is None:
            prompt = len(sequence.request.prompt)
            self._lookups += prompt
            self._hits += min(start, prompt)

    def _register(self, sequence: TokenSequence, first: int) -> None:
        """Lets the sequence's blocks from `first` on be found by their hashes."""
        hashes, register = self._hashes[sequence.id], self._blocks.register
        if self._plain:
            table = self.tables[sequence.id]
            for index in range(first, len(hashes)):
                register(table[index], hashes[index])
        for tables in () if self._plain else self._groups:
            table, group = tables.of[sequence.id], tables.group
            for index in range(max(first, tables.first(sequence.id)), len(hashes)):
                register(table[index], key_of(hashes[index], group))
        if self._announcements is not None:
            spec = sequence.request.spec
            self._announcements.registered(hashes, first, sequence.tokens, spec.cache_salt)

    def _announce_prefix(self, sequence: TokenSequence) -> None:
        """Tells which part of a sequence is found by its hashes, as far as that has not been told."""
        assert self._announcements is not None
        hashes, salt = self._hashes[sequence.id], sequence.request.spec.cache_salt
        self._announcements.registered(hashes, len(hashes), sequence.tokens, salt)

    def _holdings(self, sequences: Iterable[TokenSequence]) -> list[BlockHolding]:
        return [
            BlockHolding(
                s.id,
                tables.of[s.id],
                self._hashes[s.id],
                s.computed,
                tables.group,
                tables.first_seen(s.computed),
            )
            for s in sequences
            if s.id in self.tables
            for tables in self._groups
        ]

    def _release_blocks(self, sequence: TokenSequence) -> None:
        if sequence.id in self.tables:
            del self._holders[sequence.id]
            reach = len(self._hashes[sequence.id]) * self.block_size
            for tables in self._groups:
                tables.release(sequence.id, reach)
