"""Checks a KV cache against its contract at every call."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

from turnout.core.interfaces.kv import KVCache, PrefixPins, Span
from turnout.core.types.messages import KVSnapshot
from turnout.core.types.plan import Move
from turnout.core.types.request import Sequence as TokenSequence

__all__ = ["AuditedCache"]

Answer = TypeVar("Answer")


class AuditedCache:
    """Passes every call on to `kv`, and fails if it breaks the contract. Implements KVCache."""

    def __init__(self, kv: KVCache) -> None:
        self.kv = kv
        self.known: dict[int, TokenSequence] = {}
        """All sequences that were passed in, by id."""
        self._swapped = 0
        """Positions whose moves to host memory `drain` has not returned yet."""

    def __getattr__(self, name: str) -> Any:
        return getattr(self.kv, name)

    # -------------------------------------------------------------- queries

    @property
    def free(self) -> int:
        return self._query("free", lambda: self.kv.free)

    @property
    def capacity(self) -> int:
        return self.kv.capacity

    @property
    def prefixes(self) -> PrefixPins | None:
        return self.kv.prefixes

    def cached(self, sequence: TokenSequence) -> int:
        self.known[sequence.id] = sequence
        found = self._query("cached", lambda: self.kv.cached(sequence))
        most = len(sequence.tokens) - 1
        assert 0 <= found <= most, (
            f"`cached` returned {found}; expected 0 to {most}, since one of {most + 1} tokens must be "
            "computed"
        )
        return found

    def swappable(self, sequences: Sequence[TokenSequence]) -> int:
        return self._query("swappable", lambda: self.kv.swappable(sequences))

    def holds(self, length: int, sequences: int) -> bool:
        return self._query("holds", lambda: self.kv.holds(length, sequences))

    def fits(self, spans: Sequence[Span]) -> bool:
        return self._query("fits", lambda: self.kv.fits(spans))

    def snapshot(self) -> KVSnapshot:
        taken = self.kv.snapshot()
        assert taken.free + taken.held == taken.capacity == self.kv.capacity, (
            f"`snapshot` has {taken.free} free and {taken.held} held of {taken.capacity} positions, and the "
            f"pool has {self.kv.capacity}; expected free + held == capacity"
        )
        assert taken.free == self.kv.free, (
            f"`snapshot` reports {taken.free} free positions, `free` {self.kv.free}; expected the same"
        )
        assert 0 <= taken.shared <= taken.held and 0 <= taken.cached <= taken.free, (
            f"`snapshot` returned {taken}; expected shared <= held and cached <= free"
        )
        assert 0 <= taken.computed <= taken.held, (
            f"`snapshot` reports {taken.computed} computed positions of {taken.held} held; expected at most "
            "these"
        )
        assert 0 <= taken.swapped <= taken.swap, (
            f"`snapshot` reports {taken.swapped} positions swapped out to host memory of {taken.swap}"
        )
        drawn = sum(units for _, units in taken.states) * taken.unit // max(1, len(taken.groups))
        assert drawn == taken.capacity, (
            f"the states in `snapshot` cover {drawn} positions; expected all {taken.capacity} of the pool"
        )
        return taken

    # -------------------------------------------------------------- transitions

    def reserve(self, spans: Sequence[Span]) -> bool:
        self.known |= {span.sequence.id: span.sequence for span in spans}
        promised, before = self.kv.fits(spans), self._state()
        done = self.kv.reserve(spans)
        assert done == promised, (
            f"`fits` returned {promised} and `reserve` {done} for the same spans; expected the same: {spans}"
        )
        assert done or self._state() == before, (
            "`reserve` returned False and changed `free`, `snapshot` or `cached`; a refusal must change "
            f"nothing: {spans}"
        )
        self.snapshot()
        return done

    def commit(self, sequence: TokenSequence, upto: int) -> None:
        before = self.kv.free
        self.kv.commit(sequence, upto)
        assert self.kv.free == before, (
            f"`commit` changed `free` from {before} to {self.kv.free}; it must neither take nor free memory"
        )

    def fork(self, parent: TokenSequence, child: TokenSequence) -> None:
        self.known[child.id] = child
        before = self.kv.free
        self.kv.fork(parent, child)
        assert self.kv.free == before, (
            f"`fork` changed `free` from {before} to {self.kv.free}; it must share what the parent has"
        )

    def release(self, sequences: Iterable[TokenSequence], *, swap_out: bool = False) -> None:
        sequences = list(sequences)
        promised, before = self.kv.swappable(sequences) if swap_out else 0, self.kv.free
        self.kv.release(sequences, swap_out=swap_out)
        assert self.kv.free >= before, (
            f"`release` changed `free` from {before} to {self.kv.free}; it must not take memory"
        )
        self._swapped += promised
        for sequence in sequences:
            kept = sequence.computed if promised and sequence.held else 0
            found = self.kv.cached(sequence)
            assert found >= min(kept, len(sequence.tokens) - 1), (
                f"`release` swapped {kept} positions out, but `cached` finds {found} of them afterwards"
            )
        self.snapshot()

    def drain(self) -> list[Move]:
        moves = self.kv.drain()
        assert not self.kv.drain(), (
            "`drain` returned moves again in the next call; each must be returned once"
        )
        swapped = sum(move.length for move in moves if move.way == "swap_out")
        assert swapped == self._swapped, (
            f"`swappable` promised {self._swapped} positions, but the moves of `drain` swap {swapped} out"
        )
        self._swapped = 0
        for move in moves:
            assert move.length > 0 and min(move.source, move.target) >= 0, (
                f"`drain` returned {move}; expected a positive length and places of at least 0"
            )
        return moves

    # -------------------------------------------------------------- details

    def _query(self, name: str, query: Callable[[], Answer]) -> Answer:
        before = self._state()
        answer = query()
        assert answer == query(), f"`{name}` gave two answers in a row; expected the same: it is a query"
        assert self._state() == before, (
            f"`{name}` changed `free`, `snapshot` or `cached`; a query must change nothing"
        )
        return answer

    def _state(self) -> tuple[object, ...]:
        """Everything that its queries tell."""
        found = tuple(self.kv.cached(each) for each in self.known.values() if not each.held)
        return self.kv.free, self.kv.snapshot(), found
