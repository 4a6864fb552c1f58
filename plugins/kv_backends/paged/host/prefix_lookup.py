"""Finds the leading blocks of a sequence that holds no memory: cached in the pool, or swapped out."""

from __future__ import annotations

from turnout.core.interfaces.kv import Span
from turnout.core.types.request import Sequence as TokenSequence
from turnout.plugins.kv_backends.paged.host.attach import Attachment, Location
from turnout.plugins.kv_backends.paged.host.block_hashes import extend_hashes
from turnout.plugins.kv_backends.paged.host.blocks import BlockPool
from turnout.plugins.kv_backends.paged.host.swap import SwapBlocks

__all__ = ["PrefixLookup"]


class PrefixLookup:
    """Finds blocks by their hashes, or as swapped-out blocks of the same sequence."""

    def __init__(self, blocks: BlockPool, swap: SwapBlocks, block_size: int) -> None:
        self._blocks = blocks
        self._swap = swap
        self._size = block_size
        self.hashes: dict[int, list[bytes]] = {}
        """Hashes of a sequence's leading blocks, by sequence id: while it holds memory, of the committed
        ones. They are kept while it waits, because policies may ask for its cached tokens at every step."""

    def cached(self, sequence: TokenSequence) -> int:
        """Leading positions that need not be computed."""
        locations = self._locations(sequence)
        positions = len(locations) * self._size
        swapped = self._swap.of(sequence.id)
        return min(positions, swapped.length) if swapped and locations[-1] < 0 else positions

    def attachment(self, span: Span) -> Attachment:
        return Attachment(span, self._locations(span.sequence)[: -(-span.start // self._size)])

    def extend(self, sequence: TokenSequence, blocks: int) -> list[bytes]:
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
        return block_of.get(self.extend(sequence, index + 1)[index])
