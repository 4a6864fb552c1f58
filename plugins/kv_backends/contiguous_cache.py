"""Host half of the contiguous backend: a slab for each sequence, as long as it may ever get.

What servers did before paging, kept as the baseline to compare with: nothing is shared, room for the
whole output of all its choices is held from a request's first token on, and free memory may lie in
pieces too small to use. In exchange a running request never runs out of memory.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from turnout.core.interfaces import Span
from turnout.core.plan import Move
from turnout.core.request import Request
from turnout.core.request import Sequence as TokenSequence

__all__ = ["ContiguousCache", "Slab"]

Gap = tuple[int, int]
"""Start and length of free memory."""


@dataclass(eq=False, slots=True)
class Slab:
    """Pool positions from `start` on, as many as its request's limit."""

    start: int
    readers: int = 0
    """Sequences that use it: more than one between a fork and its first write."""


@dataclass(eq=False, slots=True)
class _Holding:
    """The slabs of one request: as many as it may have sequences."""

    slabs: list[Slab]
    sequences: set[int] = field(default_factory=set)

    def spare(self) -> Slab:
        return next(slab for slab in self.slabs if not slab.readers)


class ContiguousCache:
    """Which request holds which slabs."""

    def __init__(self, tokens: int) -> None:
        self.capacity = tokens
        self.slabs: dict[int, Slab] = {}
        """Sequence id to its slab, read by the device half."""
        self._holdings: dict[Request, _Holding] = {}
        # Ordered by start, never touching one another.
        self._gaps: list[Gap] = [(0, tokens)] if tokens else []
        self._moves: list[Move] = []

    # -------------------------------------------------------------- queries

    @property
    def free(self) -> int:
        return sum(length for _, length in self._gaps)

    def holds(self, length: int, sequences: int) -> bool:
        return sequences * length <= self.capacity

    def cached(self, sequence: TokenSequence) -> int:
        return 0

    def fits(self, spans: Sequence[Span]) -> bool:
        return _place(self._gaps, self._lengths(spans)) is not None

    # -------------------------------------------------------------- transitions

    def reserve(self, spans: Sequence[Span]) -> bool:
        lengths = self._lengths(spans)
        placed = _place(self._gaps, lengths)
        if placed is None:
            return False
        starts, self._gaps = placed
        for request, first in self._newcomers(spans).items():
            self._holdings[request] = _Holding(
                [Slab(start) for start in starts[first : first + request.width]]
            )
        for span in spans:
            self._settle(span)
        return True

    def commit(self, sequence: TokenSequence, upto: int) -> None:
        """Nothing to do: slabs are never shared with later requests."""

    def fork(self, parent: TokenSequence, child: TokenSequence) -> None:
        self._use(child, self.slabs[parent.id])

    def release(self, sequences: Iterable[TokenSequence]) -> None:
        for sequence in sequences:
            if sequence.id in self.slabs:
                self._leave(sequence)
                self._give_back_if_unused(sequence.request)

    def drain(self) -> list[Move]:
        moves, self._moves = self._moves, []
        return moves

    # -------------------------------------------------------------- details

    def _newcomers(self, spans: Sequence[Span]) -> dict[Request, int]:
        """Requests that hold nothing yet, each with the number of slabs wanted by those before it."""
        firsts: dict[Request, int] = {}
        total = 0
        for request in dict.fromkeys(span.sequence.request for span in spans):
            if request not in self._holdings:
                firsts[request] = total
                total += request.width
        return firsts

    def _lengths(self, spans: Sequence[Span]) -> list[int]:
        return [request.limit for request in self._newcomers(spans) for _ in range(request.width)]

    def _settle(self, span: Span) -> None:
        """Give a sequence a slab of its own: its first one, or a copy of the one it shares."""
        sequence = span.sequence
        shared = self.slabs.get(sequence.id)
        if shared is not None and shared.readers == 1:
            return
        slab = self._holdings[sequence.request].spare()
        if shared is not None:
            self._moves.append(Move(shared.start, slab.start, span.start))
            self._leave(sequence)
        self._use(sequence, slab)

    def _use(self, sequence: TokenSequence, slab: Slab) -> None:
        slab.readers += 1
        self.slabs[sequence.id] = slab
        self._holdings[sequence.request].sequences.add(sequence.id)

    def _leave(self, sequence: TokenSequence) -> None:
        self.slabs.pop(sequence.id).readers -= 1
        self._holdings[sequence.request].sequences.discard(sequence.id)

    def _give_back_if_unused(self, request: Request) -> None:
        if not self._holdings[request].sequences:
            freed = [(slab.start, request.limit) for slab in self._holdings.pop(request).slabs]
            self._gaps = _merge([*self._gaps, *freed])


def _place(gaps: list[Gap], lengths: list[int]) -> tuple[list[int], list[Gap]] | None:
    """First fit: a start for each of `lengths` and the gaps left then; None when one does not fit."""
    left, starts = list(gaps), []
    for need in lengths:
        index = next((i for i, (_, length) in enumerate(left) if length >= need), None)
        if index is None:
            return None
        start, length = left[index]
        starts.append(start)
        left[index : index + 1] = [(start + need, length - need)] if length > need else []
    return starts, left


def _merge(gaps: list[Gap]) -> list[Gap]:
    merged: list[Gap] = []
    for start, length in sorted(gaps):
        if merged and sum(merged[-1]) == start:
            merged[-1] = (merged[-1][0], merged[-1][1] + length)
        else:
            merged.append((start, length))
    return merged
