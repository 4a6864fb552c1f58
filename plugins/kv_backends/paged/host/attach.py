"""Memory for sequences that hold none: attaches cached blocks, and brings swapped-out blocks back."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from turnout.core.interfaces.kv import Span
from turnout.core.types.plan import Move
from turnout.plugins.kv_backends.paged.host.block_tables import BlockTable
from turnout.plugins.kv_backends.paged.host.blocks import BlockPool

__all__ = ["Attacher", "Attachment", "Location"]

Location = int
"""A block of the pool, or ``~block`` for a block of host memory."""


class Attachment(NamedTuple):
    """A sequence that is about to get its first memory."""

    span: Span
    locations: list[Location]
    """The locations of its blocks below the start of the span."""


class Attacher:
    """Attaches several sequences at once; a swapped-out block that they share is brought back once."""

    def __init__(self, blocks: BlockPool, block_size: int) -> None:
        self._blocks = blocks
        self._size = block_size

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
