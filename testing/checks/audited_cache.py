"""A KV cache that is held to its contract at every call."""

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
    """Passes every call on, and fails where the answer is not what was promised. Implements KVCache."""

    def __init__(self, kv: KVCache) -> None:
        self.kv = kv
        self.known: dict[int, TokenSequence] = {}
        """Whoever was seen, by id."""
        self._swapped = 0
        """Positions whose move to host memory `drain` has still to hand out."""

    def __getattr__(self, name: str) -> Any:
        return getattr(self.kv, name)

    # -------------------------------------------------------------- queries

    @property
    def free(self) -> int:
        return self._asked("free", lambda: self.kv.free)

    @property
    def capacity(self) -> int:
        return self.kv.capacity

    @property
    def prefixes(self) -> PrefixPins | None:
        return self.kv.prefixes

    def cached(self, sequence: TokenSequence) -> int:
        self.known[sequence.id] = sequence
        found = self._asked("cached", lambda: self.kv.cached(sequence))
        most = len(sequence.tokens) - 1
        assert 0 <= found <= most, f"cached says {found}: one of {most + 1} tokens must be left to compute"
        return found

    def swappable(self, sequences: Sequence[TokenSequence]) -> int:
        return self._asked("swappable", lambda: self.kv.swappable(sequences))

    def holds(self, length: int, sequences: int) -> bool:
        return self._asked("holds", lambda: self.kv.holds(length, sequences))

    def fits(self, spans: Sequence[Span]) -> bool:
        return self._asked("fits", lambda: self.kv.fits(spans))

    def snapshot(self) -> KVSnapshot:
        taken = self.kv.snapshot()
        assert taken.free + taken.held == taken.capacity == self.kv.capacity, (
            f"free {taken.free} and held {taken.held} do not make the capacity, {taken.capacity}"
        )
        assert taken.free == self.kv.free, f"the snapshot says {taken.free} are free, `free` {self.kv.free}"
        assert 0 <= taken.shared <= taken.held and 0 <= taken.cached <= taken.free, f"impossible: {taken}"
        assert 0 <= taken.computed <= taken.held, f"{taken.computed} computed of {taken.held} that are held"
        assert 0 <= taken.swapped <= taken.swap, f"{taken.swapped} swapped out in {taken.swap}"
        drawn = sum(units for _, units in taken.states) * taken.unit
        assert drawn == taken.capacity, f"the map has {drawn} positions, the pool {taken.capacity}"
        return taken

    # -------------------------------------------------------------- transitions

    def reserve(self, spans: Sequence[Span]) -> bool:
        self.known |= {span.sequence.id: span.sequence for span in spans}
        promised, before = self.kv.fits(spans), self._books()
        done = self.kv.reserve(spans)
        assert done == promised, f"fits says {promised}, reserve {done}, of {spans}"
        assert done or self._books() == before, f"reserve refused {spans}, and changed something"
        self.snapshot()
        return done

    def commit(self, sequence: TokenSequence, upto: int) -> None:
        before = self.kv.free
        self.kv.commit(sequence, upto)
        assert self.kv.free == before, f"commit changed what is free from {before} to {self.kv.free}"

    def fork(self, parent: TokenSequence, child: TokenSequence) -> None:
        self.known[child.id] = child
        before = self.kv.free
        self.kv.fork(parent, child)
        assert self.kv.free == before, f"fork took {before - self.kv.free} positions; it must take none"

    def release(self, sequences: Iterable[TokenSequence], *, swap_out: bool = False) -> None:
        sequences = list(sequences)
        promised, before = self.kv.swappable(sequences) if swap_out else 0, self.kv.free
        self.kv.release(sequences, swap_out=swap_out)
        assert self.kv.free >= before, "release must not take memory"
        self._swapped += promised
        for sequence in sequences:
            kept = sequence.computed if promised and sequence.held else 0
            found = self.kv.cached(sequence)
            assert found >= min(kept, len(sequence.tokens) - 1), (
                f"release kept {kept} positions, cached finds {found}"
            )
        self.snapshot()

    def drain(self) -> list[Move]:
        moves = self.kv.drain()
        assert not self.kv.drain(), "drain handed moves out twice"
        swapped = sum(move.length for move in moves if move.way == "swap_out")
        assert swapped == self._swapped, f"swappable said {self._swapped} positions, {swapped} swapped out"
        self._swapped = 0
        for move in moves:
            assert move.length > 0 and min(move.source, move.target) >= 0, f"impossible: {move}"
        return moves

    # -------------------------------------------------------------- details

    def _asked(self, name: str, query: Callable[[], Answer]) -> Answer:
        before = self._books()
        answer = query()
        assert answer == query(), f"{name} gave two answers to one question"
        assert self._books() == before, f"{name} is a query, and changed something"
        return answer

    def _books(self) -> tuple[object, ...]:
        """All that can be seen of it from outside."""
        found = tuple(self.kv.cached(each) for each in self.known.values() if not each.held)
        return self.kv.free, self.kv.snapshot(), found
