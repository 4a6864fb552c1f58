"""The first memory of a sequence: finds its leading blocks in the pool or swapped out, and attaches them.

::

    reserve ──▶ attachment   blocks of the pool by their hashes, then swapped-out blocks of the same sequence
            ──▶ tables       blocks of the pool get another holder, swapped-out ones are brought back
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from turnout.core.interfaces.kv import Span
from turnout.core.types.plan import Move
from turnout.core.types.request import Sequence as TokenSequence
from turnout.plugins.kv_backends.paged.host.block_hashes import extend_hashes
from turnout.plugins.kv_backends.paged.host.block_tables import BlockTable
from turnout.plugins.kv_backends.paged.host.blocks import BlockPool
from turnout.plugins.kv_backends.paged.host.swap import SwapBlocks

__all__ = ["Attacher", "Attachment"]

Location = int
"""A block of the pool, or ``~block`` for a block of host memory."""


class Attachment(NamedTuple):
    """A sequence that is about to get its first memory."""

    span: Span
    locations: list[Location]
    """The locations of its blocks below the start of the span."""


class Attacher:
    """Finds the blocks of sequences; brings a swapped-out block that several of them share back once."""

    def __init__(self, blocks: BlockPool, swap: SwapBlocks, block_size: int) -> None:
        self._blocks = blocks
        self._swap = swap
        self._size = block_size
        self.hashes: dict[int, list[bytes]] = {}
        """Hashes of a sequence's leading blocks, by sequence id: while it holds memory, of the committed
        ones. They are kept while it waits, because policies may ask for its cached tokens at every step."""

    # -------------------------------------------------------------- finding

    def cached(self, sequence: TokenSequence) -> int:
        """Leading positions that need not be computed."""
        locations = self._locations(sequence)
        positions = len(locations) * self._size
        swapped = self._swap.of(sequence.id)
        return min(positions, swapped.length) if swapped and locations[-1] < 0 else positions

    def attachment(self, span: Span) -> Attachment:
        return Attachment(span, self._locations(span.sequence)[: -(-span.start // self._size)])

    def extend_hashes(self, sequence: TokenSequence, blocks: int) -> list[bytes]:
        """The hashes of at least so many leading blocks, all of which must have all their tokens."""
        hashes = self.hashes.setdefault(sequence.id, [])
        return extend_hashes(hashes, sequence.tokens, sequence.request.spec.cache_salt, self._size, blocks)

    def _locations(self, sequence: TokenSequence) -> list[Location]:
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

    def _registered(self, sequence: TokenSequence, index: int) -> int | None:
        """The registered block with the tokens of the sequence's block `index`.

        None if there is none, or if no token would be left to compute.
        """
        block_of = self._blocks.block_of
        if not block_of or (index + 1) * self._size >= len(sequence.tokens):
            return None
        return block_of.get(self.extend_hashes(sequence, index + 1)[index])

    # -------------------------------------------------------------- attaching

    def blocks_needed(self, attachments: Sequence[Attachment]) -> int:
        """Available blocks that the sequences use: those they attach, new ones, and copies on write."""
        total, readers, writers = 0, set[Location](), dict[Location, int]()
        for span, locations in attachments:
            total += -(-span.upto // self._size) - len(locations)
            whole = span.start // self._size
            readers.update(locations[:whole])
            for location in locations[whole:]:
                writers[location] = writers.get(location, 0) + 1
        total += sum(not self._held(location) for location in readers | writers.keys())
        for location, count in writers.items():
            # The last writer of a block writes in place, unless the block has readers.
            total += count if location in readers or self._held(location) else count - 1
        return total

    def tables(self, attachments: Sequence[Attachment], moves: list[Move]) -> list[BlockTable]:
        """Block tables up to the start of each span, with held blocks; appends the moves to fill them."""
        # Blocks of the pool come first: taking a block must not evict one that a later sequence attaches.
        for _, locations in attachments:
            for location in locations:
                if location >= 0:
                    self._blocks.attach(location)
        filled = self._filled(attachments)
        swapped_in: dict[Location, int] = {}
        return [array("i", self._fill(each, filled, swapped_in, moves)) for each in attachments]

    def _filled(self, attachments: Sequence[Attachment]) -> dict[Location, int]:
        """Positions to bring back of each swapped-out block: the most that any sibling has filled."""
        filled: dict[Location, int] = {}
        for span, locations in attachments:
            for index, location in enumerate(locations):
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
                block = swapped_in[location] = self._blocks.take()
                moves.append(Move(~location * self._size, block * self._size, filled[location], "swap_in"))
                yield block
