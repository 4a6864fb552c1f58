"""Host half of the contiguous backend: a slab for each sequence, as long as the sequence may ever get.

This is the baseline that paging is compared with, and what servers did before it. Nothing is shared, a
request holds memory for the whole output of all its choices from its first token on, and free memory may be
in ranges too short to use. In exchange a running request never runs out of memory.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import chain

from turnout.core.interfaces.kv import KVDigest, PoolSize, Span
from turnout.core.types.messages import KVSnapshot
from turnout.core.types.plan import Move
from turnout.core.types.request import Request
from turnout.core.types.request import Sequence as TokenSequence
from turnout.plugins.kv_backends.contiguous.first_fit import FirstFit
from turnout.plugins.kv_backends.contiguous.slabs import Slab, runs
from turnout.plugins.kv_backends.contiguous.swap import SlabHolding, SwapSlabs

__all__ = ["ContiguousCache"]


@dataclass(eq=False, slots=True)
class _RequestSlabs:
    """The slabs of one request, one for each sequence that it may have."""

    slabs: list[Slab]
    sequences: dict[int, TokenSequence] = field(default_factory=dict)

    def spare(self) -> Slab:
        return next(slab for slab in self.slabs if not slab.readers)


class ContiguousCache:
    """Keeps account of the slabs that requests hold; implements KVCache."""

    prefixes = None

    def __init__(self, size: PoolSize) -> None:
        self.capacity = size.tokens
        self.swap = size.swap
        """Positions of host memory."""
        self.slabs: dict[int, Slab] = {}
        """The slab of each sequence id, read by the device half."""
        self._holdings: dict[Request, _RequestSlabs] = {}
        self._ranges = FirstFit(size.tokens)
        self._swap = SwapSlabs(size.swap)
        self._moves: list[Move] = []

    # -------------------------------------------------------------- queries

    @property
    def free(self) -> int:
        return self._ranges.free

    def holds(self, length: int, sequences: int) -> bool:
        return sequences * length <= self.capacity

    def cached(self, sequence: TokenSequence) -> int:
        swapped = self._swap.of(sequence.id)
        return swapped.length if swapped else 0

    def swappable(self, sequences: Sequence[TokenSequence]) -> int:
        return self._swap.cost(self._computed(sequences))

    def fits(self, spans: Sequence[Span]) -> bool:
        return self._ranges.fits(self._lengths(spans))

    def digests(self) -> KVDigest:
        held = {number: slab.start for number, slab in self.slabs.items()}
        return KVDigest({"swapped positions": self._swap.used}, held)

    # -------------------------------------------------------------- transitions

    def reserve(self, spans: Sequence[Span]) -> bool:
        starts = self._ranges.take(self._lengths(spans))
        if starts is None:
            return False
        for request, first in self._new_requests(spans).items():
            self._holdings[request] = _RequestSlabs(
                [Slab(start, request.limit) for start in starts[first : first + request.width]]
            )
        for span in spans:
            self._assign_slab(span)
        return True

    def commit(self, sequence: TokenSequence, upto: int) -> None:
        """Does nothing: slabs are never shared with later requests."""

    def fork(self, parent: TokenSequence, child: TokenSequence) -> None:
        self._use(child, self.slabs[parent.id])

    def release(self, sequences: Iterable[TokenSequence], *, swap_out: bool = False) -> None:
        sequences = list(sequences)
        moves = self._swap.swap_out(self._computed(sequences)) if swap_out else None
        self._moves += moves or ()
        for sequence in sequences:
            if sequence.id in self.slabs:
                self._release_slab(sequence)
                self._give_back_if_unused(sequence.request)
            if moves is None:
                self._swap.forget(sequence.id)

    def drain(self) -> list[Move]:
        moves, self._moves = self._moves, []
        return moves

    def snapshot(self) -> KVSnapshot:
        slabs = list(chain.from_iterable(holding.slabs for holding in self._holdings.values()))
        return KVSnapshot(
            capacity=self.capacity,
            free=self.free,
            held=sum(slab.length for slab in slabs),
            shared=sum(slab.length for slab in slabs if slab.readers > 1),
            computed=self._computed_positions(),
            cached=0,
            pinned=0,
            swap=self.swap,
            swapped=self._swap.used,
            lookups=0,
            hits=0,
            evictions=0,
            unit=1,
            states=runs(slabs, self._ranges.ranges),
        )

    # -------------------------------------------------------------- details

    def _new_requests(self, spans: Sequence[Span]) -> dict[Request, int]:
        """Requests without slabs, each with the index of its first among all new slabs."""
        firsts: dict[Request, int] = {}
        total = 0
        for request in dict.fromkeys(span.sequence.request for span in spans):
            if request not in self._holdings:
                firsts[request] = total
                total += request.width
        return firsts

    def _lengths(self, spans: Sequence[Span]) -> list[int]:
        """The lengths of all new slabs."""
        return [request.limit for request in self._new_requests(spans) for _ in range(request.width)]

    def _assign_slab(self, span: Span) -> None:
        """Gives a sequence a slab of its own: its first one, or a copy of the one that it shares."""
        sequence, start, _ = span
        shared = self.slabs.get(sequence.id)
        if shared is not None and shared.readers == 1:
            return
        slab = self._holdings[sequence.request].spare()
        if shared is not None:
            self._moves.append(Move(shared.start, slab.start, start))
            self._release_slab(sequence)
        elif swapped := self._swap.of(sequence.id):
            self._moves.append(Move(swapped.start, slab.start, start, "swap_in"))
            self._swap.forget(sequence.id)
        self._use(sequence, slab)

    def _use(self, sequence: TokenSequence, slab: Slab) -> None:
        slab.readers += 1
        self.slabs[sequence.id] = slab
        self._holdings[sequence.request].sequences[sequence.id] = sequence

    def _release_slab(self, sequence: TokenSequence) -> None:
        self.slabs.pop(sequence.id).readers -= 1
        del self._holdings[sequence.request].sequences[sequence.id]

    def _give_back_if_unused(self, request: Request) -> None:
        if not self._holdings[request].sequences:
            slabs = self._holdings.pop(request).slabs
            self._ranges.give_back((slab.start, slab.length) for slab in slabs)

    def _computed(self, sequences: Iterable[TokenSequence]) -> list[SlabHolding]:
        """The computed positions of those sequences that hold a slab."""
        return [(s.id, self.slabs[s.id], s.computed) for s in sequences if s.id in self.slabs]

    def _computed_positions(self) -> int:
        computed: dict[int, int] = {}
        for holding in self._holdings.values():
            for sequence in holding.sequences.values():
                start = self.slabs[sequence.id].start
                computed[start] = max(computed.get(start, 0), sequence.computed)
        return sum(computed.values())
