"""What is in memory already of a sequence that holds nothing: known blocks in the pool, swapped-out ones."""

from __future__ import annotations

from turnout.core.interfaces.kv import Span
from turnout.core.types.request import Sequence as TokenSequence
from turnout.plugins.kv_backends.paged.host.attach import Arrival, Place
from turnout.plugins.kv_backends.paged.host.block_hashes import extend_chain
from turnout.plugins.kv_backends.paged.host.blocks import Blocks
from turnout.plugins.kv_backends.paged.host.swap import SwapBlocks

__all__ = ["Lookup"]


class Lookup:
    """Finds the leading blocks of a sequence, by their keys or as what was swapped out of it."""

    def __init__(self, blocks: Blocks, swap: SwapBlocks, block_size: int) -> None:
        self._blocks = blocks
        self._swap = swap
        self._size = block_size
        self.chains: dict[int, list[bytes]] = {}
        """Keys of a sequence's leading blocks: while it holds memory, of those that are committed. Kept while
        it waits, because policies may ask at every step."""

    def cached(self, sequence: TokenSequence) -> int:
        """Positions that need no compute."""
        places = self._places(sequence)
        positions = len(places) * self._size
        swapped = self._swap.of(sequence.id)
        return min(positions, swapped.length) if swapped and places[-1] < 0 else positions

    def arrival(self, span: Span) -> Arrival:
        return Arrival(span, self._places(span.sequence)[: -(-span.start // self._size)])

    def extend(self, sequence: TokenSequence, blocks: int) -> list[bytes]:
        """The keys of at least so many leading blocks, which must be filled with tokens."""
        chain = self.chains.setdefault(sequence.id, [])
        return extend_chain(chain, sequence.tokens, sequence.request.spec.cache_salt, self._size, blocks)

    def _places(self, sequence: TokenSequence) -> list[Place]:
        swapped = self._swap.of(sequence.id)
        places: list[Place] = []
        while True:
            index = len(places)
            block = self._known(sequence, index)
            if block is not None:
                places.append(block)
            elif swapped is None or index >= len(swapped.blocks):
                return places
            else:
                places.append(~swapped.blocks[index])
                if swapped.length < (index + 1) * self._size:
                    return places  # half full: what may be known to follow is of no use

    def _known(self, sequence: TokenSequence, index: int) -> int | None:
        """The block with the tokens of the sequence's `index`-th; one token at least is left to compute."""
        block_of = self._blocks.block_of
        if not block_of or (index + 1) * self._size >= len(sequence.tokens):
            return None
        return block_of.get(self.extend(sequence, index + 1)[index])
