"""Host half of the paged backend: block tables, prefix sharing, copy-on-write. Integers only.

A pool of equal blocks (Kwon et al., "PagedAttention", SOSP 2023). A sequence's block table maps its
positions to blocks; a block whose tokens are final is known by the hash of all tokens up to its end, so
whoever starts with the same tokens attaches to it, also after its holder is gone, until it is reused.

::

    position   0 .. 15   16 .. 31   32 .. 47
    table        [ 7,        2,         9 ]      block 7 and 2: committed, hashed, maybe shared
                                                 block 9: the tail, written in place when its only holder
"""

from __future__ import annotations

from array import array
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from hashlib import blake2b
from typing import NamedTuple

from turnout.core.interfaces import Span
from turnout.core.plan import Move
from turnout.core.request import Sequence as TokenSequence

__all__ = ["PagedCache"]


class _Hit(NamedTuple):
    block: int
    key: bytes


class PagedCache:
    """Which sequence holds which blocks."""

    def __init__(self, blocks: int, block_size: int, *, prefix_caching: bool = True) -> None:
        self.block_size = block_size
        self.prefix_caching = prefix_caching
        self.tables: dict[int, list[int]] = {}
        """Sequence id to its blocks, read by the device half."""
        self._holders = [0] * blocks
        # Blocks nobody holds, the next to be reused first: never hashed, then least recently used.
        self._idle: OrderedDict[int, None] = OrderedDict.fromkeys(range(blocks))
        self._key_of: dict[int, bytes] = {}
        self._block_of: dict[bytes, int] = {}
        # Keys of a sequence's leading blocks: while it holds a table, of those that are committed.
        self._chains: dict[int, list[bytes]] = {}
        self._moves: list[Move] = []

    # -------------------------------------------------------------- queries

    @property
    def capacity(self) -> int:
        return len(self._holders) * self.block_size

    @property
    def free(self) -> int:
        return len(self._idle) * self.block_size

    def holds(self, length: int, sequences: int) -> bool:
        return sequences * self._blocks(length) <= len(self._holders)

    def cached(self, sequence: TokenSequence) -> int:
        return len(self._match(sequence)) * self.block_size

    def fits(self, spans: Sequence[Span]) -> bool:
        return self._needed(spans) <= len(self._idle)

    # -------------------------------------------------------------- transitions

    def reserve(self, spans: Sequence[Span]) -> bool:
        if all(self._covered(span) for span in spans):
            return True
        if not self.fits(spans):
            return False
        # Attach everything first: taking a block must not evict one that a later span counted on.
        for span in spans:
            self._attach(span)
        for span in spans:
            self._own_tail(span)
            table = self.tables[span.sequence.id]
            table.extend(self._take() for _ in range(self._blocks(span.upto) - len(table)))
        return True

    def commit(self, sequence: TokenSequence, upto: int) -> None:
        if not self.prefix_caching:
            return
        chain = self._chains.setdefault(sequence.id, [])
        known = len(chain)
        if upto < (known + 1) * self.block_size:
            return
        table = self.tables[sequence.id]
        self._extend_chain(chain, sequence.tokens, upto // self.block_size)
        for key, block in zip(chain[known:], table[known:], strict=False):
            # The first block with these tokens is the one to share; a twin stays private.
            if key not in self._block_of and block not in self._key_of:
                self._block_of[key], self._key_of[block] = block, key

    def fork(self, parent: TokenSequence, child: TokenSequence) -> None:
        self.tables[child.id] = list(self.tables[parent.id])
        self._chains[child.id] = list(self._chains.get(parent.id, ()))
        for block in self.tables[child.id]:
            self._hold(block)

    def release(self, sequences: Iterable[TokenSequence]) -> None:
        for sequence in sequences:
            # Last block first: a chain is of use from its start, so its end is reused earlier.
            for block in reversed(self.tables.pop(sequence.id, ())):
                self._drop(block)
            self._chains.pop(sequence.id, None)

    def drain(self) -> list[Move]:
        moves, self._moves = self._moves, []
        return moves

    # -------------------------------------------------------------- counting

    def _blocks(self, tokens: int) -> int:
        return -(-tokens // self.block_size)

    def _covered(self, span: Span) -> bool:
        """One more token in a block of its own: what nearly every sequence asks in nearly every step."""
        table = self.tables.get(span.sequence.id)
        if table is None or span.upto - span.start != 1:
            return False
        index = span.start // self.block_size
        return index < len(table) and self._holders[table[index]] == 1

    def _needed(self, spans: Sequence[Span]) -> int:
        """Idle blocks that `reserve` would use up."""
        total, revived, writers = 0, set[int](), dict[int, int]()
        for span in spans:
            table, hits = self.tables.get(span.sequence.id, []), self._hits(span)
            revived.update(hit.block for hit in hits if not self._holders[hit.block])
            total += max(0, self._blocks(span.upto) - len(table) - len(hits))
            for index in self._shared(span):
                block = table[index]
                writers[block] = writers.get(block, 0) + 1
        # Of those who write to a shared block, the last holder left writes in place.
        copies = sum(min(count, self._holders[block] - 1) for block, count in writers.items())
        return total + len(revived) + copies

    def _shared(self, span: Span) -> list[int]:
        """Places in its table that a sequence is about to write to while others hold them too."""
        table = self.tables.get(span.sequence.id, ())
        first, last = span.start // self.block_size, min(self._blocks(span.upto), len(table))
        return [index for index in range(first, last) if self._holders[table[index]] > 1]

    # -------------------------------------------------------------- prefixes

    def _match(self, sequence: TokenSequence) -> list[_Hit]:
        """The cached blocks that a sequence starts with; one token at least is left to compute."""
        if not self.prefix_caching or not self._block_of:
            return []
        hits: list[_Hit] = []
        # Kept while it waits: policies may ask at every step.
        chain = self._chains.setdefault(sequence.id, [])
        for index in range((len(sequence.tokens) - 1) // self.block_size):
            self._extend_chain(chain, sequence.tokens, index + 1)
            block = self._block_of.get(chain[index])
            if block is None:
                break
            hits.append(_Hit(block, chain[index]))
        return hits

    def _hits(self, span: Span) -> list[_Hit]:
        """The blocks to attach to, if it holds none yet: those below its start."""
        if span.sequence.id in self.tables:
            return []
        return self._match(span.sequence)[: span.start // self.block_size]

    def _key(self, previous: bytes, tokens: list[int], index: int) -> bytes:
        """Stable over processes and machines of one byte order, unlike Python's own hash."""
        start = index * self.block_size
        block = array("q", tokens[start : start + self.block_size]).tobytes()
        return blake2b(block, key=previous, digest_size=16).digest()

    def _extend_chain(self, chain: list[bytes], tokens: list[int], blocks: int) -> None:
        for index in range(len(chain), blocks):
            chain.append(self._key(chain[-1] if chain else b"", tokens, index))

    # -------------------------------------------------------------- holding

    def _attach(self, span: Span) -> None:
        if span.sequence.id in self.tables:
            return
        hits = self._hits(span)
        for hit in hits:
            self._hold(hit.block)
        self.tables[span.sequence.id] = [hit.block for hit in hits]
        self._chains[span.sequence.id] = [hit.key for hit in hits]

    def _own_tail(self, span: Span) -> None:
        """Copy on write: what is shared and about to be written is replaced by a block of its own."""
        table, size = self.tables[span.sequence.id], self.block_size
        for index in self._shared(span):
            shared, fresh = table[index], self._take()
            filled = span.start - index * size
            if filled > 0:
                self._moves.append(Move(shared * size, fresh * size, min(filled, size)))
            self._drop(shared)
            table[index] = fresh

    def _take(self) -> int:
        block, _ = self._idle.popitem(last=False)
        key = self._key_of.pop(block, None)
        if key is not None:
            del self._block_of[key]
        self._holders[block] = 1
        return block

    def _hold(self, block: int) -> None:
        if not self._holders[block]:
            del self._idle[block]
        self._holders[block] += 1

    def _drop(self, block: int) -> None:
        self._holders[block] -= 1
        if not self._holders[block]:
            self._idle[block] = None
            if block not in self._key_of:
                self._idle.move_to_end(block, last=False)
