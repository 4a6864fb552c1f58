"""The first memory of a sequence: finds its leading blocks in the pool or swapped out, and attaches them.

::

    reserve ──▶ attachment   blocks of the pool by their hashes, then swapped-out blocks of the same sequence
            ──▶ tables       blocks of the pool get another holder, swapped-out ones are brought back

Layers with a window need only the blocks that the next query sees. Where a group lacks one of these, the
sequence goes on from an earlier position.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from turnout.core.interfaces.kv import Span
from turnout.core.types.plan import Move
from turnout.core.types.request import Sequence as TokenSequence
from turnout.plugins.kv_backends.paged.host.block_hashes import extend_hashes, key_of
from turnout.plugins.kv_backends.paged.host.block_tables import BlockTable, SequenceTables
from turnout.plugins.kv_backends.paged.host.blocks import BlockPool
from turnout.plugins.kv_backends.paged.host.checkpoints import NOWHERE, Checkpoints
from turnout.plugins.kv_backends.paged.host.swap import SwapBlocks
from turnout.plugins.kv_backends.paged.host.window_tables import ABSENT

__all__ = ["Attacher", "Attachment"]

Location = int
"""A block of the pool, or ``~block`` for a block of host memory."""


class Attachment(NamedTuple):
    """A sequence that is about to get its first memory, for layers of one group."""

    span: Span
    locations: list[Location]
    """The locations of its blocks below the start of the span, from block `first` on."""
    first: int = 0
    group: int = 0


class Attacher:
    """Finds the blocks of sequences; brings a swapped-out block that several of them share back once."""

    def __init__(
        self, blocks: BlockPool, swap: SwapBlocks, block_size: int, groups: Sequence[SequenceTables]
    ) -> None:
        self._blocks = blocks
        self._swap = swap
        self._size = block_size
        self._groups = groups
        self._windowed = [tables for tables in groups if tables.window is not None]
        self.hashes: dict[int, list[bytes]] = {}
        """Hashes of a sequence's leading blocks, by sequence id: while it holds memory, of the committed
        ones. They are kept while it waits, because policies may ask for its cached tokens at every step."""

    # -------------------------------------------------------------- finding

    def cached(self, sequence: TokenSequence) -> int:
        """Leading positions that need not be computed."""
        if self._windowed:
            return self._seen_by_windows(sequence)
        return self._leading(sequence)

    def attachments(self, span: Span) -> list[Attachment]:
        """Where the blocks of a span's sequence are, for each group. Its start is one that `cached` gave, or
        an earlier one if no group has a window.
        """
        if not self._windowed:
            return [Attachment(span, self._locations(span.sequence)[: -(-span.start // self._size)])]
        return [self._attachment(span, tables) for tables in self._groups]

    def checkpoints(self, span: Span) -> Checkpoints:
        """Where sequences that come later may go on from what this one computes or has found."""
        if not self._windowed:
            return NOWHERE
        sequence, size = span.sequence, self._size
        again = sequence.request.timing.scheduled is not None  # it goes on from what was its own
        start = 0 if again else span.start // size
        known = 0 if self._groups[0].window else self._leading(sequence) // size
        return Checkpoints(
            start,
            branch=0 if known == span.start // size else known,
            prompt=len(sequence.request.prompt) // size,
        )

    def extend_hashes(self, sequence: TokenSequence, blocks: int) -> list[bytes]:
        """The hashes of at least so many leading blocks, all of which must have all their tokens."""
        hashes = self.hashes.setdefault(sequence.id, [])
        return extend_hashes(hashes, sequence.tokens, sequence.request.spec.cache_salt, self._size, blocks)

    def _leading(self, sequence: TokenSequence) -> int:
        """Leading positions that are there for the first group."""
        locations = self._locations(sequence)
        positions = len(locations) * self._size
        swapped = self._swap.of(sequence.id)
        return min(positions, swapped.length) if swapped and locations[-1] < 0 else positions

    def _locations(self, sequence: TokenSequence) -> list[Location]:
        """The leading blocks that are there for the first group."""
        swapped = self._swap.of(sequence.id)
        locations: list[Location] = []
        while True:
            index = len(locations)
            block = self._registered(sequence, index)
            if block is not None:
                locations.append(block)
            elif swapped is None or index >= len(swapped.blocks):
                return locations
            else:
                locations.append(~swapped.blocks[index])
                if swapped.length < (index + 1) * self._size:
                    return locations  # this block is not full: blocks behind it could not be attached

    def _registered(self, sequence: TokenSequence, index: int, group: int = 0) -> int | None:
        """The registered block with the tokens of the sequence's block `index`.

        None if there is none, or if no token would be left to compute.
        """
        block_of = self._blocks.block_of
        if not block_of or (index + 1) * self._size >= len(sequence.tokens):
            return None
        return block_of.get(key_of(self.extend_hashes(sequence, index + 1)[index], group))

    # -------------------------------------------------------------- windows

    def _seen_by_windows(self, sequence: TokenSequence) -> int:
        """The last position at which a sequence can go on with what is there for each group.

        Looks backwards, at each block once: one that is missing moves the position before it.
        """
        size, position = self._size, self._furthest(sequence)
        index = -(-position // size)
        while index > min(tables.first_seen(position) for tables in self._windowed):
            index -= 1
            for tables in self._windowed:
                if index < tables.first_seen(position):
                    continue
                location = self._location(sequence, index, tables.group)
                if location is None:
                    position = index * size
                    break
                if location < 0:  # what was swapped out may end in this block
                    swapped = self._swap.of(sequence.id, tables.group)
                    assert swapped is not None
                    position = min(position, swapped.length) if index == swapped.length // size else position
        return position

    def _furthest(self, sequence: TokenSequence) -> int:
        """The position up to which layers without a window have everything."""
        unscored = sequence.request.unscored
        most = min(len(sequence.tokens) - 1, unscored.start) if unscored else len(sequence.tokens) - 1
        if self._groups[0].window is None:
            found = self._leading(sequence)
        else:
            swapped = self._swap.of(sequence.id)
            found = most // self._size * self._size if self._blocks.block_of else 0
            found = max(found, swapped.length if swapped else 0)
        return found if found <= most else most // self._size * self._size

    def _location(self, sequence: TokenSequence, index: int, group: int) -> Location | None:
        block = self._registered(sequence, index, group)
        if block is not None:
            return block
        swapped = self._swap.of(sequence.id, group)
        host = None if swapped is None else swapped.at(index)
        return None if host is None else ~host

    def _attachment(self, span: Span, tables: SequenceTables) -> Attachment:
        first, end = tables.first_seen(span.start), -(-span.start // self._size)
        locations = list[Location]()
        for index in range(first, end):
            location = self._location(span.sequence, index, tables.group)
            if location is None:
                raise RuntimeError(
                    f"{span.sequence} cannot go on from position {span.start}: block {index} of KV group "
                    f"{tables.group} is not there; spans begin where `cached` says"
                )
            locations.append(location)
        return Attachment(span, locations, first, tables.group)

    # -------------------------------------------------------------- attaching

    def blocks_needed(self, attachments: Sequence[Attachment]) -> int:
        """Available blocks that the sequences use: those they attach, new ones, and copies on write."""
        total, readers, writers = 0, set[Location](), dict[Location, int]()
        for span, locations, first, _ in attachments:
            total += -(-span.upto // self._size) - len(locations) - first
            whole = span.start // self._size - first
            readers.update(locations[:whole])
            for location in locations[whole:]:
                writers[location] = writers.get(location, 0) + 1
        total += sum(not self._held(location) for location in readers | writers.keys())
        for location, count in writers.items():
            # The last writer of a block writes in place, unless the block has readers.
            total += count if location in readers or self._held(location) else count - 1
        return total

    def hold(self, attachments: Sequence[Attachment]) -> None:
        """Holds the blocks of the pool that sequences attach, before any other use may evict one."""
        for attachment in attachments:
            for location in attachment.locations:
                if location >= 0:
                    self._blocks.attach(location)

    def tables(self, attachments: Sequence[Attachment], moves: list[Move]) -> list[BlockTable]:
        """Block tables up to the start of each span; appends the moves that fill them.

        The blocks of the pool are held already.
        """
        filled = self._filled(attachments)
        swapped_in: dict[Location, int] = {}
        return [
            array("i", [ABSENT] * each.first) + array("i", self._fill(each, filled, swapped_in, moves))
            for each in attachments
        ]

    def _filled(self, attachments: Sequence[Attachment]) -> dict[Location, int]:
        """Positions to bring back of each swapped-out block: the most that any sibling has filled."""
        filled: dict[Location, int] = {}
        for span, locations, first, _ in attachments:
            for index, location in enumerate(locations, first):
                if location < 0:
                    own = min(self._size, span.start - index * self._size)
                    filled[location] = max(filled.get(location, 0), own)
        return filled

    def _held(self, location: Location) -> bool:
        return location >= 0 and self._blocks.holders[location] > 0

    def _fill(
        self,
        attachment: Attachment,
        filled: dict[Location, int],
        swapped_in: dict[Location, int],
        moves: list[Move],
    ) -> Iterable[int]:
        for location in attachment.locations:
            if location >= 0:
                yield location
            elif location in swapped_in:
                self._blocks.hold(swapped_in[location])
                yield swapped_in[location]
            else:
                block = swapped_in[location] = self._blocks.take(attachment.group)
                moves.append(Move(~location * self._size, block * self._size, filled[location], "swap_in"))
                yield block
